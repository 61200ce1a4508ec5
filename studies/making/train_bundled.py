"""Train the bundled pair of models/: a byte-level BPE vocabulary, a target, and its draft.

    pip install -r studies/making/requirements.txt
    python -m studies.making.train_bundled fairy-tales.txt --out models

The text is UTF-8, with one paragraph per line.

1. Learn a vocabulary of 2,048 tokens. The last tenth of the text is held out.
2. Train the target in three stages, two of them with dropout, because the text is small
   and is read several times.
3. Let the target write text, half of it greedily and half by sampling.
4. Train the draft on both texts, first with the loss KL(target || draft), then with the
   total variation. It has to agree with the target on the target's own writing, which
   differs from the corpus after a few tokens (cf. DistillSpec, arXiv 2310.08461).

Both are written as float16 in OpenAI's checkpoint format.
"""

from ending import report
from studies.making.fit_ngrams import CORPUS, split_tales
from terminal import Parser


def arguments():
    parser = Parser(description=__doc__)
    parser.add_argument("corpus", help=CORPUS)
    parser.add_argument("--out", default="models", help="where to write both (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    args = arguments()  # before the imports, so that --help needs no extra packages

import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel

from checkpoint.huggingface import openai_name
from checkpoint.openai import EOT
from checkpoint.write import write_checkpoint

N_VOCAB, N_CTX = 2048, 512
TARGET = dict(n_layer=6, n_embd=384, n_head=6)
DRAFT = dict(n_layer=1, n_embd=192, n_head=6)
TARGET_STAGES = (  # steps, dropout, learning rate
    (1000, 0.1, 3e-3),
    (520, 0.0, 1.5e-3),
    (1000, 0.15, 2.5e-3),
)
DRAFT_STAGES = (  # steps, loss, learning rate
    (5200, "kl", 6e-3),
    (1400, "tv", 2.5e-3),
    (6000, "tv", 5e-3),
)
N_WRITTEN = 1_000_000  # tokens that the target writes
WRITTEN_WEIGHT = 2  # how often each of them is read per epoch
BATCH = 16  # sequences of N_CTX tokens
SEED = 2302


def seeded(step):
    """A new rng for a step, which does not depend on what was drawn in the steps before."""
    torch.manual_seed(SEED + step)
    return np.random.default_rng(SEED + step)


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


# ---- 1. The vocabulary ----


def learn_bpe(tales):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # words as GPT-2's
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=N_VOCAB - 1, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(tales, trainer)
    tokenizer.add_special_tokens([EOT])  # the last id
    return tokenizer


def tokens_of(tales, tokenizer):
    return np.concatenate([[*e.ids, N_VOCAB - 1] for e in tokenizer.encode_batch(tales)])


# ---- Training ----


def cut(ids, starts, n):
    """Windows of n tokens that begin at these numbers."""
    return torch.tensor(np.stack([ids[s : s + n] for s in starts]))


def make_model(sizes):
    config = GPT2Config(
        vocab_size=N_VOCAB, n_positions=N_CTX, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        activation_function="gelu_pytorch_tanh", **sizes,  # "gelu_new", but computed faster
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def batches(epoch, n_steps, rng):
    """BATCH numbers of epoch() at a time, in random order, and a new epoch if too few are left."""
    left = []
    for _ in range(n_steps):
        if len(left) < BATCH:
            left = list(rng.permutation(epoch()))
        yield torch.tensor([left.pop() for _ in range(BATCH)])


def train(model, n_steps, lr, losses):
    """Train with Muon for the matrices of the blocks and AdamW for the other weights.

    The learning rate rises to lr in 50 steps and then falls linearly to 0. losses yields
    the loss of a batch n_steps times.
    """
    matrices = [p for p in model.transformer.h.parameters() if p.ndim == 2]
    held = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in held]
    optimizers = [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=0.01),
    ]
    begun = time.time()
    model.train()
    for step, loss in enumerate(losses, start=1):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr * min(step / 50, (n_steps - step + 1) / n_steps)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        if step % 20 == 0 or step == n_steps:
            taken = time.time() - begun
            print(f"step {step}/{n_steps} loss {loss.item():.4f} {taken:.0f} s", flush=True)
    model.eval()


@torch.no_grad()
def held_out(windows, loss):
    """The mean of loss(some) over all windows."""
    return np.mean([loss(some).item() for some in windows.split(BATCH)])


# ---- 2. The target ----


def train_target(train_ids, test_ids):
    seeded(0)
    target = make_model(TARGET)
    n = len(test_ids) // N_CTX
    windows = cut(test_ids, np.arange(n) * N_CTX, N_CTX)

    def loss(ids):
        with autocast():
            logits = target(input_ids=ids).logits
        return F.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())

    for stage, (n_steps, dropout, lr) in enumerate(TARGET_STAGES, start=1):
        rng = seeded(stage)
        for name, module in target.named_modules():
            slow = name.endswith("attn_dropout")  # on a CPU
            if isinstance(module, torch.nn.Dropout) and not slow:
                module.p = dropout
        train(target, n_steps, lr, map(loss, windows_of(train_ids, n_steps, rng)))
        print(f"held out: {held_out(windows, loss):.4f} nats per token", flush=True)
        target.half().float()  # as they will be written
    return target


def windows_of(ids, n_steps, rng):
    """Windows of N_CTX tokens in random order. Each epoch cuts the text at another offset."""

    def epoch():
        return np.arange(rng.integers(N_CTX), len(ids) - N_CTX, N_CTX)

    for starts in batches(epoch, n_steps, rng):
        yield cut(ids, starts, N_CTX)


# ---- 3. What it writes ----


@torch.no_grad()
def write_text(target, ids, n_tokens, rng, do_sample):
    """Let the target write sequences of N_CTX tokens. Half of them continue a tale's beginning."""
    tales = np.flatnonzero(ids == N_VOCAB - 1)[:-3] + 1  # the last few may be too short
    sequences = []
    while len(sequences) * N_CTX < n_tokens:
        if rng.random() < 0.5:
            n_prompt, starts = int(rng.integers(4, 40)), rng.choice(tales, size=96)
        else:
            n_prompt = int(rng.integers(4, 100))
            starts = rng.integers(len(ids) - n_prompt, size=96)
        prompts = cut(ids, starts, n_prompt)
        n_new = N_CTX - n_prompt
        with autocast():
            out = target.generate(
                prompts, attention_mask=torch.ones_like(prompts), do_sample=do_sample, top_k=0,
                max_new_tokens=n_new, eos_token_id=None, pad_token_id=N_VOCAB - 1,
            )  # fmt: skip
        sequences += out
        print(f"written: {len(sequences) * N_CTX} of {n_tokens} tokens", flush=True)
    return torch.stack(sequences)


# ---- 4. The draft ----


def train_draft(target, train_ids, written):
    rng = seeded(11)
    draft = make_model(DRAFT)
    n_corpus = len(train_ids) // N_CTX
    n_held = len(written) // 20
    corpus = cut(train_ids, np.arange(n_corpus) * N_CTX, N_CTX)
    windows = torch.cat([corpus, written])
    q = teach(target, windows)
    held = torch.arange(n_corpus, n_corpus + n_held)
    of_target = np.arange(n_corpus + n_held, len(windows))
    numbers = np.append(np.arange(n_corpus), np.tile(of_target, WRITTEN_WEIGHT))

    def loss(some, kind="tv"):
        """KL(q || p) + H(q), or the total variation, which is 1 - alpha."""
        with autocast():
            logits = draft(input_ids=windows[some]).logits.float().flatten(0, 1)
        rows = q[some].float().flatten(0, 1)
        if kind == "kl":
            return F.cross_entropy(logits, rows)
        return (logits.softmax(-1) - rows).abs().sum(-1).mean() / 2

    for n_steps, kind, lr in DRAFT_STAGES:
        some = batches(lambda: numbers, n_steps, rng)
        train(draft, n_steps, lr, map(partial(loss, kind=kind), some))
        print(f"held out: alpha {1 - held_out(held, loss):.3f} at temperature 1", flush=True)
    return draft


@torch.no_grad()
def teach(target, windows):
    """The target's row at each position, once for all epochs: it is most of the work of a step."""
    q = torch.empty(*windows.shape, N_VOCAB, dtype=torch.float16)  # 4 KB per token, 13 GB in all
    for into, ids in zip(q.split(BATCH), windows.split(BATCH), strict=True):
        with autocast():
            into.copy_(target(input_ids=ids).logits.float().softmax(-1))
    return q


# ---- Writing ----


def write_model(model, sizes, tokenizer, folder):
    """Write the five files of models/: OpenAI's, without those that only TensorFlow reads."""
    tensors = {}
    for name, value in model.transformer.state_dict().items():
        name, value = openai_name(name), value.half().numpy()
        tensors[name] = value[None] if name.endswith("/w") else value  # 1-d convolutions
    write_checkpoint(folder, dict(n_vocab=N_VOCAB, n_ctx=N_CTX, **sizes), tensors.items())
    bpe = json.loads(tokenizer.to_str())["model"]
    merges = ["#version: 0.2", *map(" ".join, bpe["merges"]), ""]
    ids = json.dumps(bpe["vocab"] | {EOT: N_VOCAB - 1})
    Path(folder, "encoder.json").write_text(ids, encoding="utf-8")
    Path(folder, "vocab.bpe").write_text("\n".join(merges), encoding="utf-8", newline="\n")


def main(args):
    train_tales, test_tales = split_tales(args.corpus)
    tokenizer = learn_bpe(train_tales)
    train_ids, test_ids = tokens_of(train_tales, tokenizer), tokens_of(test_tales, tokenizer)
    print(f"{len(train_ids)} training tokens, {len(test_ids)} held out", flush=True)
    target = train_target(train_ids, test_ids)
    write_model(target, TARGET, tokenizer, f"{args.out}/target")
    rng = seeded(10)
    written = [write_text(target, train_ids, N_WRITTEN // 2, rng, s) for s in (False, True)]
    draft = train_draft(target, train_ids, torch.cat(written))
    write_model(draft, DRAFT, tokenizer, f"{args.out}/draft")


if __name__ == "__main__":
    report(lambda: main(args), "python -m studies.making.train_bundled")
