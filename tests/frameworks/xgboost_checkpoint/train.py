# After demo/guide-python/callbacks.py of XGBoost: TrainingCheckPoint, and going on from the newest model.
import os
import re
import time

import xgboost as xgb
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

ROUNDS = 150


class Slow(xgb.callback.TrainingCallback):
    """More data, in time."""

    def after_iteration(self, model, epoch, evals_log):
        time.sleep(0.3)
        return False


def main():
    check_point_dir = "checkpoints"
    os.makedirs(check_point_dir, exist_ok=True)
    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_valid, y_train, y_valid = train_test_split(X, y, random_state=0)
    dtrain, dvalid = xgb.DMatrix(X_train, y_train), xgb.DMatrix(X_valid, y_valid)

    rounds = [int(m[1]) for m in map(re.compile(r"model_(\d+)\.ubj$").match, os.listdir(check_point_dir)) if m]
    done, before = 0, None
    if rounds:
        before = xgb.Booster(model_file=os.path.join(check_point_dir, f"model_{max(rounds)}.ubj"))
        done = before.num_boosted_rounds()
        print(f"resuming from model_{max(rounds)}.ubj with {done} rounds")
    else:
        print("training from scratch")

    check_point = xgb.callback.TrainingCheckPoint(directory=check_point_dir, name="model", interval=10)
    booster = xgb.train(
        {"objective": "binary:logistic", "eta": 0.05, "nthread": 1},
        dtrain,
        num_boost_round=ROUNDS - done,
        evals=[(dtrain, "Train"), (dvalid, "Valid")],
        callbacks=[check_point, Slow()],
        xgb_model=before,
    )
    booster.save_model("model.json")
    print(f"done: {booster.num_boosted_rounds()} rounds")


if __name__ == "__main__":
    main()
