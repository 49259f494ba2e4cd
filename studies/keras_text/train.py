"""A Keras script over arrays of words: an embedding, a convolution and a classifier."""

import argparse

import keras
import numpy as np
from keras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--texts", type=int, default=20000)
arguments = parser.parse_args()

rng = np.random.default_rng(0)
words = rng.integers(1, 4000, (arguments.texts, 60))
labels = (words < 200).sum(1) > 3

inputs = keras.Input((60,), dtype="int32")
x = layers.Embedding(4000, 32)(inputs)
x = layers.Conv1D(64, 5, activation="relu")(x)
x = layers.GlobalMaxPooling1D()(x)
outputs = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model(inputs, outputs)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
model.fit(words, labels, batch_size=32, epochs=arguments.epochs, validation_split=0.1, verbose=2)
