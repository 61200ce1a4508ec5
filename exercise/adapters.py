"""How each function of the exercise becomes a part of a sampler."""

from functools import partial

import numpy as np

from exercise.returned import (
    Wrong,
    array_from,
    bool_from,
    hint_for,
    rows_from,
    text_from,
    tokens_from,
)
from exercise.tables import NAMES, quoted
from gallery.setting import decode, target_rows
from lab.trees import Node, grow, paths, score
from sampling import sample
from speculative import acceptance, residual, verify


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
            return int(bool_from(function(p[i].copy(), q[i].copy(), token, rng)))

        return changed(accept)(drafted, p, q, rng)

    return rule


def as_residual(function):
    """A rule that resamples from this function."""

    def resampled(p, q, i, token):
        return rows_from(function(p[i], q[i]), "the residual", p[i].shape)

    return changed(resampled=resampled)


ONE_TOKEN = "it emits one token, drawn from q[0]"


def as_verify(function):
    """A rule that is this function, with its result checked."""

    def rule(drafted, p, q, rng):
        k = len(drafted)
        returned = function(drafted, p, q, rng)
        emitted = tokens_from(returned, "the round", q.shape[1], function)
        if not 1 <= len(emitted) <= k + 1:
            needed = f"a round with {k} guesses emits 1 to {k + 1} tokens" if k else ONE_TOKEN
            raise Wrong(f"{needed}{hint_for(returned)}; found {emitted.tolist()!s:.60}")
        return emitted

    return rule


def where_guesses(rule):
    """This rule in a round with guesses, and `verify` in one without."""
    return lambda drafted, *args: (rule if len(drafted) else verify)(drafted, *args)


def with_loop(function, **eos):
    """A loop, as a sampler. eos=... is for step 5, until_eos."""

    def text(rng, setting):
        x = np.array(setting.prompt)
        models = setting.draft_model, setting.target_model
        returned = function(x, *models, setting.N, setting.K, rng, **eos)
        return text_from(returned, setting, function, **eos)

    return text


def with_propose(function):
    """A function of step 6, as a sampler: its guesses, and verify."""

    def draft(x, draft_model, k, rng, stop=None):
        if k == 0:
            return x[:0], ()
        returned = function(x, draft_model, k, rng)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise Wrong(f"a draft returns the guesses and their rows; found {returned!r:.60}")
        n_vocab = draft_model(x).shape[1]
        drafted = tokens_from(returned[0], "the guesses", n_vocab, function)
        p = array_from(returned[1], "p", (k, n_vocab), float)
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
    """A function of step 7, as a sampler that penalises the target's rows."""

    def rows(setting, x, drafted):
        q = target_rows(setting, x, drafted)
        return rows_from(function(q, np.append(x, drafted)), "the rows", q.shape)

    return partial(decode, rows=rows)


def with_siblings(function):
    """A function of step 8, as a sampler of trees."""

    def text(rng, setting):
        root = grown(setting, rng)
        most = max(map(len, paths(root)))  # counted before the function may change the tree
        returned = function(root, rng)
        if not isinstance(returned, list) or not 1 <= len(returned) <= most:
            raise Wrong(f"a list of 1 to {most} tokens is needed; found {returned!r:.60}")
        emitted = tokens_from(returned, "the round", len(setting.P), function)
        return [*setting.prompt, *emitted.tolist()]

    return text


def grown(setting, rng):
    """A tree of guesses after the prompt, with the rows of the draft and of the target."""
    x = np.array(setting.prompt)
    root = Node(children=grow(x, setting.draft_model, setting.shape, rng))
    score(x, setting.target_model, root)
    return root
