# After "Strategies to scale computationally: bigger data" (out-of-core learning with partial_fit) and "Model persistence"
# (joblib.dump) of scikit-learn's user guide.
import os
import time

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

EPOCHS = 45
CHECKPOINT = os.path.join("models", "checkpoint.joblib")


def main():
    os.makedirs("models", exist_ok=True)
    X, y = load_digits(return_X_y=True)
    if os.path.exists(CHECKPOINT):
        state = joblib.load(CHECKPOINT)
        clf, start = state["model"], state["epoch"]
        print("resumed at epoch", start)
    else:
        clf, start = SGDClassifier(random_state=0), 0
        print("starting from scratch")
    for epoch in range(start, EPOCHS):
        for batch in np.array_split(np.random.permutation(len(X)), 20):
            clf.partial_fit(X[batch], y[batch], classes=np.arange(10))
            time.sleep(0.05)
        print(f"Epoch {epoch + 1}: accuracy {clf.score(X, y):.3f}")
        joblib.dump({"model": clf, "epoch": epoch + 1}, CHECKPOINT)
    joblib.dump(clf, "digits.joblib")


if __name__ == "__main__":
    main()
