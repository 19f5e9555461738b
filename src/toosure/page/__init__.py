"""Pages: report and live page of runs, evaluation and calibration, each one offline file."""
