"""The eight steps: what each function is put into, which tables it meets, and its rivals."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from enumeration import sum_over_paths
from gallery import EOS, GALLERY, Setting
from gallery.ends import plain_to_eos
from gallery.penalties import penalised_rows
from gallery.setting import decode, plain, target_rows
from lab.trees import Node, balanced, grow, paths, score
from sampling import sample
from speculative import acceptance, residual, verify

NAMES = "ABCD"


class Wrong(Exception):
    """What a function returned cannot be right, whatever its distribution."""


@dataclass(frozen=True, eq=False)
class Check:
    """A function becomes a part of a sampler, which should write the texts of the reference."""

    sampler: Callable  # sampler(function) -> a function of rng and a setting that returns ids
    settings: list
    rivals: list = ()  # (sampler, variant of the gallery) that may have the same distribution
    reference: Callable = plain
    where: str = ""  # what is special about it, as the end of a sentence
    is_round: bool = False  # whether the sampler emits one round, which the target continues

    def distribution(self, sampler, setting, compute=sum_over_paths):
        found = distribution_of(sampler, setting, compute)
        return completed({**found}, setting) if self.is_round else found

    def size(self, setting):
        K = "" if self.sampler is with_siblings else f", K = {setting.K}"
        return f"N = {setting.N}{K}"

    def place(self, setting):
        """What an error says of a setting, if it's a special one."""
        size = f" ({self.size(setting)})" if setting in SIZES else ""
        return f"{size}{self.where}"


def distribution_of(sampler, setting, compute):
    """What `compute` finds, or what was found before."""
    if (sampler, setting) not in FOUND:
        with np.errstate(all="ignore"):
            FOUND[sampler, setting] = compute(lambda rng: sampler(rng, setting))
    return FOUND[sampler, setting]


FOUND = {}


def completed(found, setting):
    """Texts of N tokens: those that are shorter are continued by the target."""
    short = [ids for ids in found if len(ids) < len(setting.prompt) + setting.N]
    if not short:
        return found
    for ids in short:
        mass = found.pop(ids)
        for token, q in enumerate(setting.target_model(ids)[-1].tolist()):
            longer = (*ids, token)
            if q > 0:
                found[longer] = found.get(longer, 0) + mass * q
    return completed(found, setting)


def quoted(ids):
    return '"' + " ".join(NAMES[id] for id in ids) + '"'


# ---- Tables: a mistake may hide in any of them ----


TABLES = {  # P and Q, whose rows have equal sums
    "README": (  # after A
        ((2, 5, 3), (1, 2, 7), (2, 3, 5)),
        ((3, 2, 5), (5, 4, 1), (3, 5, 2)),
    ),
    "cycle": (  # A B C A B C ..., which the draft knows nearly as well
        ((1, 8, 1), (1, 1, 8), (8, 1, 1)),
        ((2, 7, 1), (1, 2, 7), (7, 1, 2)),
    ),
    "zeros": (  # and two tokens that tie, in 14ths, which rounding changes
        ((7, 7, 0), (1, 13, 0), (6, 2, 6)),
        ((0, 8, 6), (0, 12, 2), (8, 3, 3)),
    ),
    "two tokens": (((60, 40), (0, 100)), ((20, 80), (1, 99))),
    "rare": (  # each token is rare somewhere, with p above q, and a rare replacement elsewhere
        ((2, 194, 2, 2), (2, 2, 193, 3), (2, 2, 2, 194), (193, 3, 2, 2)),
        ((1, 100, 3, 96), (95, 1, 100, 4), (3, 96, 1, 100), (100, 4, 95, 1)),
    ),
    "twins": (  # equal rows of P beside other rows of Q, and the reverse, and ties
        ((8, 6, 2), (8, 8, 0), (8, 8, 0)),
        ((10, 2, 4), (10, 2, 4), (4, 8, 4)),
    ),
    "sparse": (
        ((1, 2, 1, 0), (0, 4, 0, 0), (1, 0, 1, 2), (1, 1, 1, 1)),
        ((2, 1, 0, 1), (1, 1, 2, 0), (0, 2, 1, 1), (3, 0, 1, 0)),
    ),
}


def setting_of(name, **sizes):
    P, Q = (np.array(table) / sum(table[0]) for table in TABLES[name])
    return Setting(P, Q, **sizes)


README = setting_of("README")
SHORT = replace(README, N=2, K=1)
CYCLE = setting_of("cycle")
ZEROS = setting_of("zeros")
LONG = setting_of("two tokens", prompt=(1, 0), N=4, K=3)
RARE = setting_of("rare")
TWINS = setting_of("twins")
SPARSE = setting_of("sparse")
CHAINS = (README, ZEROS, LONG, TWINS)
ROUND = replace(RARE, N=4, K=3)
ONE_GUESS = replace(README, N=4, K=1)
ENDED = replace(LONG, prompt=(1, 1, 0))
SIZES = [replace(LONG, N=N, K=K) for N, K in ((1, 2), (0, 2), (4, 0))]
SHAPES = (
    README,
    replace(SPARSE, shape=balanced(2, 2)),
    replace(RARE, shape=(((),),)),
    replace(RARE, shape=(((), ()), ())),
    replace(RARE, shape=((), ((), ())), prompt=(1,)),
    replace(TWINS, shape=balanced(2, 2)),
)


# ---- What the functions are put into ----


def ratio(p, q, i, token):
    return acceptance(p[i, token], q[i, token])


def residual_row(p, q, i, token):
    return residual(p[i], q[i])


def changed(accept=ratio, resampled=residual_row):
    """`verify` with changes.

    accept(p, q, i, token) is the probability to accept guess i, and
    resampled(p, q, i, token) the row that another one is drawn from.
    """

    def rule(drafted, p, q, rng):
        for i, token in enumerate(drafted):
            if not rng.random() < accept(p, q, i, token):
                row = resampled(p, q, i, token)
                return np.append(drafted[:i], sample(row, rng))
        return np.append(drafted, sample(q[-1], rng))

    return rule


def as_accept(function):
    """A rule whose guesses are accepted by this function."""

    def rule(drafted, p, q, rng):
        def accept(p, q, i, token):
            return int(checked_bool(function(p[i].copy(), q[i].copy(), token, rng)))

        return changed(accept)(drafted, p, q, rng)

    return rule


def as_residual(function):
    """A rule that resamples from this function."""

    def resampled(p, q, i, token):
        return checked_rows(function(p[i], q[i]), "the residual", p[i].shape)

    return changed(resampled=resampled)


ONE_TOKEN = "it emits one token, drawn from q[0]"


def as_verify(function):
    """A rule that is this function, with its result checked."""

    def rule(drafted, p, q, rng):
        k = len(drafted)
        found = function(drafted, p, q, rng)
        emitted = checked_tokens(found, "the round", q.shape[1])
        if not 1 <= len(emitted) <= k + 1:
            needed = f"a round of {k} guesses emits 1 to {k + 1} tokens" if k else ONE_TOKEN
            raise Wrong(f"{needed}{hint_for(found)}; found {emitted.tolist()!s:.60}")
        return emitted

    return rule


def where_guesses(rule):
    """A rule, but the right one in a round without guesses."""
    return lambda drafted, *args: (rule if len(drafted) else verify)(drafted, *args)


def with_loop(function, **eos):
    """eos=... for the step that has one."""

    def text(rng, setting):
        x = np.array(setting.prompt)
        models = setting.draft_model, setting.target_model
        found = function(x, *models, setting.N, setting.K, rng, **eos)
        return checked_text(found, setting, **eos)

    return text


def with_propose(function):
    def draft(x, draft_model, k, rng, stop=None):
        if k == 0:
            return x[:0], ()
        found = function(x, draft_model, k, rng)
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise Wrong(f"a draft returns the guesses and their rows; found {found!r:.60}")
        n_vocab = draft_model(x).shape[1]
        drafted = checked_tokens(found[0], "the guesses", n_vocab)
        p = array(found[1], "p", (k, n_vocab), float)
        for i, token in enumerate(drafted):
            check_argmax(np.append(x, drafted[:i]), draft_model, token)
        return drafted, p

    return partial(decode, propose=draft)


def check_argmax(ids, draft_model, token):
    row = draft_model(ids)[-1]
    if row[token] < row.max():
        wanted = f"{NAMES[row.argmax()]} after {quoted(ids)}"
        raise Wrong(f"a greedy draft guesses its argmax, {wanted}; found {NAMES[token]}")


def with_penalty(function):
    def rows(setting, x, drafted):
        q = target_rows(setting, x, drafted)
        return checked_rows(function(q, np.append(x, drafted)), "the rows", q.shape)

    return partial(decode, rows=rows)


def with_siblings(function):
    def text(rng, setting):
        root = grown(setting, rng)
        most = max(map(len, paths(root)))  # before the function may change the tree
        found = function(root, rng)
        if not isinstance(found, list) or not 1 <= len(found) <= most:
            raise Wrong(f"a list of 1 to {most} tokens is needed; found {found!r:.60}")
        emitted = checked_tokens(found, "the list", len(setting.P))
        return [*setting.prompt, *emitted.tolist()]

    return text


def grown(setting, rng):
    """A tree below the prompt."""
    x = np.array(setting.prompt)
    root = Node(children=grow(x, setting.draft_model, setting.shape, rng))
    score(x, setting.target_model, root)
    return root


# ---- What they return ----


def array(found, what, shape=None, dtype=None):
    if found is None:
        raise Wrong("it returned None; is a return missing?")
    try:
        found_array = np.array(found, dtype)
    except (TypeError, ValueError):  # an array and a number, for example
        raise Wrong(f"{what} must be an array; found {found!r:.60}") from None
    if shape is not None and found_array.shape != shape:
        raise Wrong(f"{what} must have the shape {list(shape)}; found {list(found_array.shape)}")
    return found_array


def checked_tokens(found, what, n_vocab):
    ids = array(found, what)
    if ids.size == 0:
        ids = ids.astype(int)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not {*ids.tolist()} <= {*range(n_vocab)}:
        needed = f"{what} must be tokens from 0 to {n_vocab - 1}{hint_for(found)}"
        raise Wrong(f"{needed}; found {found!r:.60}")
    return ids


def hint_for(found):
    return " (+ adds numbers to an array)" if isinstance(found, np.ndarray) else ""


def checked_text(found, setting, eos=None):
    ids = checked_tokens(found, "the text", len(setting.P))
    n = len(setting.prompt)
    end = n + setting.N
    may_be_shorter = eos in ids[n:].tolist()
    fits = len(ids) == end or (may_be_shorter and len(ids) < end)
    if not fits or (*ids[:n],) != setting.prompt:
        fewer = "" if eos is None else f", or fewer up to a new {NAMES[eos]}"
        needed = f"{n} + N = {end} tokens{fewer}, the prompt first"
        raise Wrong(f"the text must have {needed}; found {ids.tolist()!s:.60}")
    return ids


def checked_rows(found, what, shape):
    found_rows = array(found, what, shape, float)
    totals = np.ravel(found_rows.sum(axis=-1))
    if not (found_rows.min() >= 0 and abs(totals - 1).max() < 1e-9):
        worst = max(totals, key=lambda total: abs(total - 1))
        shown = f"{np.round(found_rows, 4).tolist()!s:.60}, with a sum of {worst:.12g}"
        raise Wrong(f"{what} must be a distribution, with a sum of 1; found {shown}")
    return found_rows


def checked_bool(found):
    if found is None:
        raise Wrong("it returned None; is a return missing?")
    if not isinstance(found, bool | np.bool_):
        raise Wrong(f"True or False is needed; found {found!r:.60}")
    return found


# ---- The steps ----


def rivals_of(*steps):
    """The wrong rules of the gallery that somebody may write in one of these steps."""
    return [(v.text, v) for v in GALLERY.values() if v.step in steps and not v.exact]


@dataclass(frozen=True, eq=False)
class Step:
    function: str  # its name
    checks: list


def first_round(sampler):
    """The same sampler, but its texts end after a round."""
    return lambda function: partial(sampler(function), end_of=lambda new, emitted: len(new))


def step_of(name, sampler, rivals, *more_checks):
    texts = Check(sampler, CHAINS, rivals)
    rounds = Check(first_round(sampler), [ROUND], is_round=True)
    return Step(name, [texts, rounds, *more_checks])


def with_rule(as_rule):
    return lambda function: partial(decode, verify=as_rule(function))


def verify_step():
    """Rounds without guesses come last, for there the first attempt of many is an IndexError."""
    sampler = with_rule(lambda function: where_guesses(as_verify(function)))
    rivals = [(sampler(variant.verify), variant) for _, variant in rivals_of("verify")]
    where = ", where there are no guesses, and q has one row"
    last = Check(with_rule(as_verify), [replace(README, N=1)], where=where)
    return step_of("verify", sampler, rivals, last)


def in_each_size(check):
    for size in SIZES:
        yield replace(check, settings=[size])


def ends_at(eos, settings, place="", rivals=()):
    loop = partial(with_loop, eos=eos)
    where = f", where {NAMES[eos]} is the eos{place}"
    return Check(loop, settings, rivals, partial(plain_to_eos, eos=eos), where)


PARTS_OF_A_LOOP = rivals_of("verify", "propose", "speculative_sampling")
LOOPS = [
    Check(with_loop, (*CHAINS, replace(RARE, N=2, K=1), ONE_GUESS), PARTS_OF_A_LOOP),
    *in_each_size(Check(with_loop, SIZES)),
]
ENDS = [
    ends_at(EOS, (README, ZEROS), rivals=rivals_of("until_eos")),
    ends_at(0, (ENDED, ZEROS), ", and the prompt ends with it"),
    ends_at(1, (LONG,), ", and the prompt begins with it"),
    *in_each_size(ends_at(1, SIZES)),
]
TREE_RULES = [(with_siblings(variant.verify), variant) for _, variant in rivals_of("siblings")]
RIGHT_PENALTY = partial(plain, rows=penalised_rows)
STEPS = [
    step_of("accept", with_rule(as_accept), rivals_of("verify")),
    step_of("residual", with_rule(as_residual), rivals_of("verify")),
    verify_step(),
    Step("speculative_sampling", LOOPS),
    Step("until_eos", ENDS),
    step_of("propose", with_propose, rivals_of("propose")),
    Step("penalised", [Check(with_penalty, CHAINS, rivals_of("penalised"), RIGHT_PENALTY)]),
    Step("siblings", [Check(with_siblings, SHAPES, TREE_RULES, is_round=True)]),
]
