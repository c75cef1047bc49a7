"""Chooses the values of a trial, and judges running trials, with Optuna.

One JSON object a line in, one a line out. Each request has the whole history: this program keeps
nothing, so any controller may ask it.
"""

import json
import math
import random
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

# Spread over the ranges before Optuna models them. Fewer miss a region. More leave too few to
# search.
START_TRIALS = 8

# The part of the trials that counts as good. Optuna takes a tenth, which of 20 trials are two.
GOOD_PART = 0.25

# Optuna's 24 candidates miss the best point of its own model.
CANDIDATES = 64

# Of the trials at a rung, one in so many goes on. These are Optuna's numbers.
ASHA_FACTOR, HYPERBAND_FACTOR = 4, 3

PRIMES = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37]


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


def frozen(params, spaces, trial, points, state=None):
    """One trial of the history. Interrupted and stopped ones count as failed for Optuna."""
    state = STATES.get(trial["state"], TrialState.FAIL) if state is None else state
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
        )
    except ValueError:
        # Of an earlier tuning with other ranges: it teaches nothing here.
        return create_trial(state=TrialState.FAIL, params={}, distributions={})


def study_of(request, sampler=None, pruner=None, state=None):
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
        points = points_of(trial) if state is None else {}
        study.add_trial(frozen(params, spaces, trial, points, state))
    return study, spaces


def sampler_of(request):
    seed = request["seed"] % (2**32)
    algorithm = request["algorithm"]
    if algorithm == "gp":
        return optuna.samplers.GPSampler(seed=seed)
    if algorithm == "cmaes":
        return optuna.samplers.CmaEsSampler(seed=seed)
    return optuna.samplers.TPESampler(
        seed=seed,
        n_startup_trials=0,
        n_ei_candidates=CANDIDATES,
        gamma=lambda count: min(max(math.ceil(GOOD_PART * count), 1), 25),
    )


def reverse_digits(number, base):
    """The number of a Halton sequence: between 0 and 1, far from those before it."""
    part, scale = 0.0, 1.0
    while number:
        number, digit = divmod(number, base)
        scale /= base
        part += digit * scale
    return part


def on_scale(space, part):
    if not space.log:
        return space.low + part * (space.high - space.low)
    low, high = math.log(space.low), math.log(space.high)
    return math.exp(low + part * (high - low))


def start_point(request, spaces):
    """The values of one of the first trials. Each tuning has its own shift."""
    shifts = random.Random(request.get("tuning", "tuning"))
    number = len(request["trials"]) + 1
    point = {}
    for at, (name, space) in enumerate(sorted(spaces.items())):
        part = (reverse_digits(number, PRIMES[at % len(PRIMES)]) + shifts.random()) % 1.0
        if isinstance(space, CategoricalDistribution):
            point[name] = space.choices[int(part * len(space.choices))]
        elif isinstance(space, IntDistribution) and not space.log:
            point[name] = min(space.low + int(part * (space.high - space.low + 1)), space.high)
        else:
            value = on_scale(space, part)
            value = round(value) if isinstance(space, IntDistribution) else value
            point[name] = min(max(value, space.low), space.high)
    return point


def ask(request):
    study, spaces = study_of(request, sampler=sampler_of(request))
    if request["algorithm"] == "tpe" and len(request["trials"]) < START_TRIALS:
        chosen = start_point(request, spaces)
    else:
        chosen = study.ask(spaces).params
    params = request["params"]
    return {"params": {name: outer(params[name], chosen[name]) for name in params}}


def longest(trials):
    """The last step of the longest trial. Before one has ended, of those that run."""
    ended = [trial for trial in trials if trial["state"] == "complete"]
    return max((max(points_of(trial), default=0) for trial in ended or trials), default=0)


def halving_of(request):
    """The pruner, and the steps at which one of its rungs may lie."""
    most = longest(request["trials"])
    if request["early_stop"] == "asha":
        first, factor = max(most // 100, 1), ASHA_FACTOR
        pruner = optuna.pruners.SuccessiveHalvingPruner(first, reduction_factor=factor)
    else:
        first, factor = 1, HYPERBAND_FACTOR
        pruner = optuna.pruners.HyperbandPruner(first, most + 1, reduction_factor=factor)
    steps = [first]
    while steps[-1] * factor <= most:
        steps.append(steps[-1] * factor)
    return pruner, steps


def climb(study, pruner, trial, points, steps):
    """Shows a trial at each rung that it has reached. Returns what the pruner says at the last."""
    stop = False
    for rung in steps:
        at = next((step for step in sorted(points) if step >= rung), None)
        if at is None:
            break
        current = study._storage.get_trial(trial._trial_id)
        current.intermediate_values = {step: points[step] for step in points if step <= at}
        stop = pruner.prune(study, current)
    return stop


def prune_by_halving(request):
    """Where each trial stood at each rung follows from its points, so no record is needed."""
    pruner, steps = halving_of(request)
    study, _ = study_of(request, pruner=pruner, state=TrialState.RUNNING)
    trials = list(zip(request["trials"], study.get_trials(deepcopy=False)))
    # The judged trial comes last, when the others stand on their rungs.
    trials.sort(key=lambda pair: pair[0]["number"] == request["number"])
    stop = False
    for trial, stored in trials:
        if stored.state.is_finished():
            # Of an earlier tuning with other ranges.
            continue
        stop = climb(study, pruner, stored, points_of(trial), steps)
    return {"prune": bool(stop)}


def prune_by_median(request):
    pruner = optuna.pruners.MedianPruner()
    study, _ = study_of(request, pruner=pruner)
    at = next(i for i, one in enumerate(request["trials"]) if one["number"] == request["number"])
    # With numpy, Optuna's answer is a bool of numpy.
    return {"prune": bool(pruner.prune(study, study.get_trials(deepcopy=False)[at]))}


def prune(request):
    """Whether a running trial is to be stopped."""
    by_halving = request["early_stop"] in ("asha", "hyperband")
    return prune_by_halving(request) if by_halving else prune_by_median(request)


def importance(request):
    study, _ = study_of(request)
    try:
        found = optuna.importance.get_param_importances(study)
    except (ValueError, RuntimeError) as error:
        return {"importance": {}, "why": str(error)}
    return {"importance": dict(found)}


def export(request):
    """A copy of the study in a file that Optuna's own programs read."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    study, _ = study_of(request)
    copy = optuna.create_study(
        study_name=request["tuning"],
        direction=request["goal"],
        storage=JournalStorage(JournalFileBackend(request["file"])),
    )
    copy.add_trials(study.get_trials(deepcopy=False))
    return {"trials": len(copy.get_trials(deepcopy=False))}


ANSWERS = {
    "export": export,
    "hello": lambda request: {"optuna": optuna.__version__},
    "ask": ask,
    "prune": prune,
    "importance": importance,
}


def main():
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = json.dumps(ANSWERS[request["do"]](request))
        except ImportError as error:
            answer = json.dumps({"error": str(error), "missing": error.name})
        except Exception as error:  # The caller shows it, and goes on with the next request.
            answer = json.dumps({"error": "{}: {}".format(type(error).__name__, error)})
        print(answer, flush=True)


main()
