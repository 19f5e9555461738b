"""The numbers of the streams, which kept scores depend on."""

from toosure.data.seeds import DataStream, RunStream, derive_seed


def test_streams_keep_their_numbers():
    """A changed number would train every run on other batches, and split its data otherwise."""
    assert {name: int(stream) for name, stream in DataStream.__members__.items()} == {
        "LABEL_NOISE": 1,
        "TEST_SPLIT": 2,
        "WATCHED": 3,
        "SHARED_VALIDATION": 4,
    }
    assert {name: int(stream) for name, stream in RunStream.__members__.items()} == {
        "EPOCH_ORDER": 0,
        "AUGMENTATION": 1,
        "ENSEMBLE_TRAINING": 3,
        "ENSEMBLE_PREDICTION": 4,
        "CONTROL_SPLIT": 4,
        "WEIGHT_SAMPLES": 5,
        "RANK": 5,
        "BATCH_NORM": 7,
        "RETURNED_CONTROL_SPLIT": 8,
        "BATCH_NORM_EXAMPLES": 9,
    }
    assert derive_seed(0, RunStream.CONTROL_SPLIT) == derive_seed(0, 4)
