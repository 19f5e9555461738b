"""How a network fares where data differ from training: corruptions, and other data sets.

`plan` says what is judged, `judge` predicts and scores, `record` is what a run folder keeps of it
(read without torch), `outside` reads the images of other data sets.
"""
