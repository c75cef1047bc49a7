"""Makes an MLflow model of a bare model folder, with the Python of the user.

usage: mlflow_model.py FRAMEWORK FOLDER TARGET [SIGNATURE]

The last line of stdout is a JSON object: {"warnings": [...], "versions": {...}, "scripts": [...]},
or {"missing": MODULE}, or {"error": TEXT, "warnings": [...]}. MLflow's server then loads TARGET.
"""

import json
import os
import pickle
import site
import sys
import sysconfig
import warnings

# The server runs with this same Python. To infer a list takes MLflow half a minute.
NO_REQUIREMENTS = ["mlflow"]


def one_of(folder, names):
    for name in names:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    raise FileNotFoundError("none of %s is in the folder" % ", ".join(names))


def unpickled(path):
    if path.endswith(".joblib"):
        import joblib

        return joblib.load(path)
    with open(path, "rb") as file:
        return pickle.load(file)


def save_xgboost(model, target):
    import mlflow.xgboost

    mlflow.xgboost.save_model(model, target, pip_requirements=NO_REQUIREMENTS)


def wrap_pickle(folder, target):
    model = unpickled(one_of(folder, ["model.joblib", "model.pkl"]))
    if type(model).__module__.split(".")[0] == "xgboost":
        return save_xgboost(model, target)
    import mlflow.sklearn

    # An estimator of the user's own is no file that skops knows, so cloudpickle it is.
    mlflow.sklearn.save_model(
        model,
        target,
        serialization_format="cloudpickle",
        pip_requirements=NO_REQUIREMENTS,
    )


def wrap_xgboost(folder, target):
    names = ["model.bst", "model.json", "model.ubj"]
    if not any(os.path.exists(os.path.join(folder, name)) for name in names):
        return wrap_pickle(folder, target)
    import xgboost

    path = one_of(folder, names)
    booster = xgboost.Booster()
    booster.load_model(path)
    save_xgboost(booster, target)


def wrap_keras(folder, target):
    import keras
    import mlflow.tensorflow

    model = keras.models.load_model(one_of(folder, ["model.keras", "model.h5"]), compile=False)
    mlflow.tensorflow.save_model(model, target, pip_requirements=NO_REQUIREMENTS)


# MLflow loads a SavedModel of TensorFlow 1 itself, but takes only named inputs of the exact type.
SAVED_MODEL_LOADER = """
import numpy
import tensorflow


class Signature:
    def __init__(self, model, name):
        self.model, self.function = model, model.signatures[name]
        self.inputs = self.function.structured_input_signature[1]

    def predict(self, data, params=None):
        if hasattr(data, "to_dict"):
            data = data.to_dict(orient="list")
        if not isinstance(data, dict):
            if len(self.inputs) != 1:
                raise ValueError("name the inputs of an instance: " + ", ".join(self.inputs))
            data = {next(iter(self.inputs)): data}
        tensors = {}
        for name, spec in self.inputs.items():
            if name not in data:
                raise ValueError("an instance has no input `%s`" % name)
            value = numpy.asarray(data[name])
            tensors[name] = tensorflow.constant(value.tolist(), dtype=spec.dtype)
        outputs = self.function(**tensors)
        return {name: value.numpy().tolist() for name, value in outputs.items()}


def _load_pyfunc(path):
    return Signature(tensorflow.saved_model.load(path), SIGNATURE)
"""


def wrap_saved_model(folder, target, signature):
    import mlflow.pyfunc
    import tensorflow

    names = sorted(tensorflow.saved_model.load(folder).signatures)
    if signature not in names:
        raise KeyError(
            "the SavedModel has no signature `%s`, but %s" % (signature, ", ".join(names) or "none")
        )
    loader = os.path.join(os.path.dirname(target), "lamp_saved_model.py")
    with open(loader, "w") as file:
        file.write("SIGNATURE = %r\n%s" % (signature, SAVED_MODEL_LOADER))
    mlflow.pyfunc.save_model(
        target,
        loader_module="lamp_saved_model",
        data_path=folder,
        code_paths=[loader],
        pip_requirements=NO_REQUIREMENTS,
    )


def wrap(framework, folder, target, signature):
    if framework == "mlflow":
        return  # It is one already.
    if framework == "tensorflow":
        wrap_saved_model(folder, target, signature)
    elif framework == "keras":
        wrap_keras(folder, target)
    elif framework == "xgboost":
        wrap_xgboost(folder, target)
    else:
        wrap_pickle(folder, target)


def versions():
    names = ["mlflow", "sklearn", "xgboost", "tensorflow", "keras"]
    loaded = [name for name in names if name in sys.modules]
    return {name: getattr(sys.modules[name], "__version__", "") for name in loaded}


def scripts():
    """Where pip puts programs: MLflow starts uvicorn by its name."""
    return [sysconfig.get_path("scripts"), os.path.join(site.getuserbase(), "bin")]


def main(framework, folder, target, signature="serving_default"):
    try:
        import mlflow  # noqa: F401
    except ImportError as error:
        return {"missing": error.name or "mlflow"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            wrap(framework, folder, target, signature)
            result = {"versions": versions(), "scripts": scripts()}
        except ModuleNotFoundError as error:
            result = {"missing": error.name}
        except Exception as error:
            result = {"error": "%s: %s" % (type(error).__name__, error)}
    named = [w for w in caught if w.category.__name__ == "InconsistentVersionWarning"]
    result["warnings"] = sorted({str(w.message).split("\n")[0] for w in named})
    return result


if __name__ == "__main__":
    result = main(*sys.argv[1:])
    print(json.dumps(result))
