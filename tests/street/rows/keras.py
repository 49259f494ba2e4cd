"""Keras' own examples: the training scripts without a download that is checked by a hash.

The commit is the last with all examples in the repository of Keras; later they moved to a larger one.
"""

from __future__ import annotations

from tests.street import data
from tests.street.rows.sources import KERAS
from tests.street.script import Data, Progress, Script

KIND = "Keras"
FOLDER = "examples/keras_io"
NO_FLAGS = "the script has no arguments"
HOME = {"KERAS_HOME": "{data}", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""The downloads of `keras.utils.get_file` lie in the folder `datasets` there."""
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def bar(batch_size: int) -> Progress:
    """The bar of `fit`, without the bars of `predict` and `evaluate`, and without the line after a validation."""
    return Progress(
        pattern=r"^\s*(?P<at>\d+)/(?P<of>\d+) (?!.* - val_).*/step - (?:.* - )?loss: \S+",
        per=batch_size,
        has_open_line=True,
    )


SCRIPTS = (
    Script(
        name="keras_demo_functional", kind=KIND, source=KERAS, folder="examples", script="demo_functional.py",
        no_data="it makes up its own numbers", packages=("keras", "tensorflow"), environment=QUIET,
        arguments={"cpu": ""}, no_expert=NO_FLAGS, progress=bar(32),
    ),
    Script(
        name="keras_addition_rnn", kind=KIND, source=KERAS, folder=FOLDER, script="nlp/addition_rnn.py",
        no_data="it makes up its own sums", packages=("keras", "tensorflow"), environment=QUIET,
        arguments={"cpu": ""}, no_expert=NO_FLAGS, progress=bar(32),
    ),
    Script(
        name="keras_weather_forecasting", kind=KIND, source=KERAS, folder=FOLDER,
        script="timeseries/timeseries_weather_forecasting.py", data=Data(name="keras_weather", make=data.weather),
        packages=("keras", "tensorflow", "pandas", "matplotlib"), environment=HOME,
        arguments={"cpu": ""}, no_expert=NO_FLAGS, progress=bar(256),
    ),
    Script(
        name="keras_text_classification", kind=KIND, source=KERAS, folder=FOLDER,
        script="tensorflow/nlp/text_classification_from_scratch.py",
        data=Data(name="keras_reviews", make=data.reviews), packages=("keras", "tensorflow"), environment=HOME,
        arguments={"cpu": ""}, no_expert=NO_FLAGS, progress=bar(32),
    ),
    Script(
        name="keras_lstm_seq2seq", kind=KIND, source=KERAS, folder=FOLDER, script="nlp/lstm_seq2seq.py",
        data=Data(name="keras_translations", make=data.translations), packages=("keras", "tensorflow"),
        environment=HOME, arguments={"cpu": ""}, no_expert=NO_FLAGS, progress=bar(64),
    ),
    Script(
        name="keras_movielens", kind=KIND, source=KERAS, folder=FOLDER,
        script="structured_data/collaborative_filtering_movielens.py",
        data=Data(name="keras_ratings", make=data.ratings),
        packages=("keras", "tensorflow", "pandas", "matplotlib"), environment=HOME,
        arguments={"cpu": ""}, no_expert=NO_FLAGS, progress=bar(64),
    ),
    Script(
        name="keras_lstm_characters", kind=KIND, source=KERAS, folder=FOLDER,
        script="tensorflow/generative/lstm_character_level_text_generation.py",
        data=Data(name="keras_letters", make=data.long_text), packages=("keras", "tensorflow"), environment=HOME,
        arguments={"cpu": ""}, no_expert=NO_FLAGS, progress=bar(128),
    ),
    Script(
        name="keras_demo_own_layers", kind=KIND, source=KERAS, folder="examples",
        script="demo_custom_layer_backend_agnostic.py", no_data="it makes up its own numbers",
        packages=("keras", "tensorflow"), environment=QUIET, arguments={"cpu": ""}, no_expert=NO_FLAGS,
        progress=bar(32),
    ),
)  # fmt: skip
