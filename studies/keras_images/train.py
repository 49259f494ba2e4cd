"""A Keras script over decoded images: a PyDataset resizes pictures in Python, and a small CNN trains on them."""

import argparse

import keras
import numpy as np
from keras import layers

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--images", type=int, default=4096)
arguments = parser.parse_args()


class Pictures(keras.utils.PyDataset):
    """Pictures of ten shapes, shrunk and flipped when asked for."""

    def __init__(self, num_images, batch_size, **kwargs):
        super().__init__(**kwargs)
        self.batch_size = batch_size
        self.rng = np.random.default_rng(0)
        self.labels = self.rng.integers(0, 10, num_images)
        self.tall = self.rng.random((64, 128, 128, 3)).astype("float32")

    def __len__(self):
        return len(self.labels) // self.batch_size

    def __getitem__(self, index):
        labels = self.labels[index * self.batch_size : (index + 1) * self.batch_size]
        images = np.stack([self.picture(int(label), number) for number, label in enumerate(labels)])
        return images, labels

    def picture(self, label, number):
        image = self.tall[number % 64].reshape(32, 4, 32, 4, 3).mean((1, 3))
        image[3 * label : 3 * label + 4, 4:28] += 1.0
        return image[:, ::-1] if number % 2 else image


model = keras.Sequential(
    [
        keras.Input((32, 32, 3)),
        layers.Conv2D(16, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(32, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(Pictures(arguments.images, 64), epochs=arguments.epochs, verbose=2)
