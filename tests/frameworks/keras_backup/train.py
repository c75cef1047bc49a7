# After keras.io/api/callbacks/backup_and_restore and "Training & evaluation with the built-in methods".
import os
import time

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np


class Slow(keras.callbacks.Callback):
    """A bigger model, in time."""

    def on_epoch_begin(self, epoch, logs=None):
        if not hasattr(self, "began"):
            self.began = epoch
            print(f"training begins at epoch {epoch + 1}")

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)


def main():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1024, 32)).astype("float32"), rng.integers(0, 10, size=1024)
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
    model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    callbacks = [keras.callbacks.BackupAndRestore(backup_dir="backup"), Slow()]
    model.fit(x, y, epochs=25, batch_size=32, callbacks=callbacks)
    model.save("model.keras")
    print("done")


if __name__ == "__main__":
    main()
