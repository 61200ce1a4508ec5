"""Networks and models with something around them: a penalty, fewer rows, another vocabulary."""

import numpy as np


class penalised:
    """A network for which tokens of the text are less likely: the repetition penalty of CTRL.

    Keskar et al. 2019 (arXiv 1909.05858, section 4.1) divide logits by the penalty.
    Negative ones are multiplied here, as in Hugging Face's Transformers, because
    dividing would make them larger. Each row looks at its own prefix of ids: a guess
    that may yet be rejected must not change the rows before it.
    """

    def __init__(self, network, penalty):
        if not penalty > 0:
            raise ValueError(f"found {penalty=}, but penalty > 0 is needed")
        self.network = network
        self.penalty = penalty

    def __getattr__(self, name):  # n_ctx, n_vocab, reset
        if name.startswith("__"):  # copy and pickle ask for these before there is a network
            raise AttributeError(name)
        return getattr(self.network, name)

    def __call__(self, ids, n_rows=1):
        logits = self.network(ids, n_rows)  # [n] -> [n_rows, n_vocab]
        n_before = len(ids) - n_rows
        is_repeated = np.zeros(np.shape(logits), dtype=bool)
        for i, row in enumerate(is_repeated):
            row[ids[: n_before + 1 + i]] = True
        less_likely = np.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return np.where(is_repeated, less_likely, logits)


def last_rows(model):
    """Let a model that returns all rows, [n, n_vocab], as in J. Mody's blog post, take n_rows."""
    return lambda ids, n_rows=1: np.asarray(model(ids))[-n_rows:]


def shared_vocabulary(draft, ids, unknown=0):
    """A draft over another vocabulary as a model over the target's.

    Timor et al. 2025 (arXiv 2502.05202) call it token-level intersection: its rows are cut
    to the shared tokens and renormalised, and the check stays as it is. ids[t] is the
    draft's id of the target's token t, or -1 if it has none: such tokens are never guessed,
    and the draft reads them as `unknown`.
    """
    ids = np.asarray(ids)
    shared = np.flatnonzero(ids >= 0)
    if not len(shared):
        raise ValueError("draft and target share no token")

    def model(x, n_rows=1):
        draft_ids = np.where(ids[x] < 0, unknown, ids[x])
        rows = np.asarray(draft(draft_ids, n_rows))  # [n_rows, n_vocab of the draft]
        p = np.zeros((n_rows, len(ids)))
        p[:, shared] = rows[:, ids[shared]]
        p[p.sum(axis=-1) == 0, shared[0]] = 1  # nothing is shared
        return p / p.sum(axis=-1, keepdims=True)

    return model
