"""Chooses the values of a trial, and judges running trials, with Optuna.

One JSON object a line in, one a line out. Each request has the whole history: this program keeps
nothing, so any controller may ask it.
"""

import json
import sys
import warnings

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.simplefilter("ignore")

STATES = {
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "running": TrialState.RUNNING,
}
RUNGS = "completed_rung_"


def distribution(param):
    kind, scale = param["type"], param.get("scale", "linear")
    if kind == "float":
        return FloatDistribution(param["min"], param["max"], log=scale != "linear")
    if kind == "int":
        return IntDistribution(param["min"], param["max"], log=scale != "linear")
    if kind == "discrete":
        # By position, so that the order of the numbers counts.
        return IntDistribution(0, len(param["values"]) - 1)
    return CategoricalDistribution(param["values"])


def inner(param, value):
    """The value as Optuna has it: it knows no reverse log scale."""
    if param["type"] == "discrete":
        return min(range(len(param["values"])), key=lambda at: abs(param["values"][at] - value))
    if param.get("scale") == "reverse-log":
        return param["min"] + param["max"] - value
    return value


def outer(param, value):
    if param["type"] == "discrete":
        return float(param["values"][value])
    if param.get("scale") == "reverse-log":
        value = param["min"] + param["max"] - value
    if param["type"] == "float":
        return min(max(float(value), param["min"]), param["max"])
    return value


def points_of(trial):
    points = {}
    for step, value in trial.get("points", []):
        points[int(round(step))] = float("nan") if value is None else value
    return points


def frozen(params, spaces, trial, points):
    """One trial of the history. Interrupted and stopped ones count as failed for Optuna."""
    state = STATES.get(trial["state"], TrialState.FAIL)
    if state is TrialState.COMPLETE and trial.get("value") is None:
        state = TrialState.FAIL
    values = trial["params"]
    known = {name: inner(params[name], values[name]) for name in spaces if name in values}
    try:
        return create_trial(
            state=state,
            value=trial["value"] if state is TrialState.COMPLETE else None,
            params=known,
            distributions={name: spaces[name] for name in known},
            intermediate_values=points,
            system_attrs=dict(trial.get("rungs", {})),
        )
    except ValueError:
        # Of an earlier tuning with other ranges: it teaches nothing here.
        return create_trial(state=TrialState.FAIL, params={}, distributions={})


def study_of(request, sampler=None, pruner=None, without=None):
    params = request["params"]
    spaces = {name: distribution(param) for name, param in params.items()}
    # Hyperband chooses the bracket of a trial by the name of the study.
    study = optuna.create_study(
        study_name=request.get("tuning", "tuning"),
        direction=request["goal"],
        sampler=sampler,
        pruner=pruner,
    )
    for trial in request["trials"]:
        points = {} if trial["number"] == without else points_of(trial)
        study.add_trial(frozen(params, spaces, trial, points))
    return study, spaces


def sampler_of(request):
    seed = request["seed"] % (2**32)
    algorithm = request["algorithm"]
    if algorithm == "gp":
        return optuna.samplers.GPSampler(seed=seed)
    if algorithm == "cmaes":
        return optuna.samplers.CmaEsSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed)


def ask(request):
    study, spaces = study_of(request, sampler=sampler_of(request))
    chosen = study.ask(spaces).params
    params = request["params"]
    return {"params": {name: outer(params[name], chosen[name]) for name in params}}


def pruner_of(request):
    early_stop = request["early_stop"]
    if early_stop == "asha":
        return optuna.pruners.SuccessiveHalvingPruner()
    if early_stop == "hyperband":
        return optuna.pruners.HyperbandPruner()
    return optuna.pruners.MedianPruner()


def prune(request):
    """Whether a running trial is to be stopped, and the rungs that it has reached."""
    number = request["number"]
    pruner = pruner_of(request)
    study, _ = study_of(request, pruner=pruner, without=number)
    at = next(i for i, trial in enumerate(request["trials"]) if trial["number"] == number)
    stored = study._storage.get_all_trials(study._study_id)[at]
    points = sorted(points_of(request["trials"][at]).items())
    # A rung counts with the value at which it was reached, so every point is shown in turn. The
    # median is of the newest step alone.
    first = len(points) if request["early_stop"] == "median" else 1
    stop = False
    for count in range(max(first, 1), len(points) + 1):
        current = study._storage.get_trial(stored._trial_id)
        current.intermediate_values = dict(points[:count])
        if pruner.prune(study, current):
            stop = True
            break
    attrs = study._storage.get_trial(stored._trial_id).system_attrs
    rungs = {key: value for key, value in attrs.items() if key.startswith(RUNGS)}
    return {"prune": stop, "rungs": rungs}


def importance(request):
    study, _ = study_of(request)
    try:
        found = optuna.importance.get_param_importances(study)
    except (ValueError, RuntimeError) as error:
        return {"importance": {}, "why": str(error)}
    return {"importance": dict(found)}


ANSWERS = {
    "hello": lambda request: {"optuna": optuna.__version__},
    "ask": ask,
    "prune": prune,
    "importance": importance,
}


def main():
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = ANSWERS[request["do"]](request)
        except ImportError as error:
            answer = {"error": str(error), "missing": error.name}
        except Exception as error:  # The caller shows it, and goes on with the next request.
            answer = {"error": "{}: {}".format(type(error).__name__, error)}
        print(json.dumps(answer), flush=True)


main()
