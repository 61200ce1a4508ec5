"""This project beside transformers: a forward pass, and whole texts with and without the draft.

    pip install -r times/requirements-peers.txt
    python -m times.peers models/target  # passes: rows after 32 cached tokens, a prompt
    python -m times.peers                # texts, with the bundled pair

Both have the same weights in float32, one thread per core, and a process of their own, and
take turns. Medians are printed. Of a prompt, both compute the last row of logits only.
"""

import importlib.util

import numpy as np

from checkpoint import UserError
from checkpoint.huggingface import openai_name
from fast.threads import n_cores
from terminal.ending import report
from terminal.options import PROMPT
from terminal.table import table
from times.forward import PAIR, hparams_of, ids_for, loop, main, passes, speeds, tensors_of
from times.turns import Engine, compare, timed
from utils import get_encoder


def torch_gpt2(folder):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(n_cores())
    sizes = dict(hparams_of(folder))
    sizes["vocab_size"] = sizes.pop("n_vocab")
    sizes["n_positions"] = sizes.pop("n_ctx")
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None, **sizes))
    tensors = tensors_of(folder)
    state = {}
    for name in model.state_dict():
        tensor = tensors[openai_name(name.replace("lm_head", "wte"))]
        state[name] = torch.from_numpy(tensor.astype(np.float32))
    model.load_state_dict(state)
    return model.eval()


def their_pass(folder):
    """An engine like forward.our_pass."""
    import torch
    from transformers import DynamicCache

    model, cache = torch_gpt2(folder), DynamicCache()
    config = model.config
    ids = torch.from_numpy(ids_for(config.vocab_size, config.n_positions))[None]

    @timed
    @torch.inference_mode()
    def forward(n_past, n_new):
        surplus = cache.get_seq_length() - n_past
        if surplus > 0:
            cache.crop(-surplus)
        new = ids[:, cache.get_seq_length() : n_past + n_new]
        output = model(new, cache=cache, logits_to_keep=n_new if n_past else 1)
        return output.logits[0, :, :5].tolist()

    return forward


def our_loop(target, draft):
    """An engine like forward.loop. Its time includes the prompt."""
    decode = loop(target, draft)
    return timed(lambda N, K: decode(N, K)[1])


def their_loop(target, draft):
    """An engine like our_loop."""
    import torch

    x = torch.tensor([get_encoder(target, "").encode(PROMPT)])
    target, draft = torch_gpt2(target), torch_gpt2(draft)
    settings = dict(attention_mask=torch.ones_like(x), do_sample=False, eos_token_id=None)
    constant = dict(num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0)

    @timed
    def decode(N, K):
        options = {}
        if K:
            draft.generation_config.update(num_assistant_tokens=K, **constant)
            options["assistant_model"] = draft
        ids = target.generate(x, max_new_tokens=N, pad_token_id=0, **settings, **options)
        return ids[0].tolist()

    return decode


def check_packages():
    if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
        advice = "pip install -r times/requirements-peers.txt"
        raise UserError(f"this needs torch and transformers: {advice}")


def compare_passes(folder):
    """A table: our time divided by theirs."""
    check_packages()
    our_jobs = passes(folder, "forward:our_pass")
    their_jobs = passes(folder, "peers:their_pass")
    jobs = {}
    for name in our_jobs:
        jobs[name, "ours"] = our_jobs[name]
        jobs[name, "theirs"] = their_jobs[name]
    seconds, logits = compare(jobs)
    rows = []
    for name in our_jobs:
        our_key, their_key = (name, "ours"), (name, "theirs")
        difference = np.abs(np.subtract(logits[our_key], logits[their_key])).max()
        assert difference < 1e-2, "the engines' logits differ"
        rows.append([name, float(np.median(seconds[our_key] / seconds[their_key]))])
    return table(["", "our time / theirs"], rows)


def compare_texts():
    check_packages()
    our_engine = Engine("times.peers:our_loop", *PAIR)
    their_engine = Engine("times.peers:their_loop", *PAIR)
    return speeds({"ours": our_engine, "transformers": their_engine}, 100)


if __name__ == "__main__":
    report(lambda: main(__doc__, compare_passes, compare_texts), "python -m times.peers")
