"""Train the bundled pair of models/: a byte-level BPE vocabulary, a target, and a draft distilled from the target.

    pip install -r studies/making/requirements.txt
    python -m studies.making.train_bundled fairy-tales.txt --out models

The text is UTF-8, with one paragraph per line. Steps 1 to 4 keep their results in
--work, and a stopped run goes on at the step, or stage of step 2, where it stopped.

1. Learn a vocabulary of 2,048 tokens. The last tenth of the text is held out.
2. Train the target in three stages, two of them with dropout, because the text is small
   and is read several times.
3. Let the target write text, half of it greedily and half by sampling.
4. Train the draft on both texts, first with the loss KL(target || draft), then with the
   total variation. It has to agree with the target on the target's own writing, which
   differs from the corpus after a few tokens (cf. DistillSpec, arXiv 2310.08461).
5. Write both to --out, as float16 in OpenAI's checkpoint format.
"""

import argparse
import json
import time
from pathlib import Path


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "corpus", help="a text file, with <|endoftext|> alone on a line between tales"
    )
    parser.add_argument(
        "--out", default="models", help="where the two models are written (%(default)s)"
    )
    parser.add_argument(
        "--work", default="build/bundled", help="where each step keeps its result (%(default)s)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    args = arguments()  # before the imports, so that --help needs no extra packages

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel

from checkpoint.huggingface import openai_name
from checkpoint.openai import EOT
from checkpoint.write import write_checkpoint
from studies.making.fit_ngrams import split_tales
from terminal import report

N_VOCAB, N_CTX = 2048, 512
TARGET = dict(n_layer=6, n_embd=384, n_head=6)
DRAFT = dict(n_layer=1, n_embd=192, n_head=6)
TARGET_STAGES = (
    (1000, 0.1, 3e-3),
    (520, 0.0, 1.5e-3),
    (1000, 0.15, 2.5e-3),
)  # steps, dropout, learning rate
DRAFT_STAGES = (
    (5200, "kl", 6e-3),
    (1400, "tv", 2.5e-3),
    (6000, "tv", 5e-3),
)  # steps, loss, learning rate
N_WRITTEN, WRITTEN_WEIGHT = (
    1_000_000,
    2,
)  # tokens that the target writes; how often each is read per epoch
BATCH = 16  # sequences of N_CTX tokens
SEED = 2302
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def learn_bpe(tales, path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )  # splits into words like GPT-2
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=N_VOCAB - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(tales, trainer)
    tokenizer.add_special_tokens([EOT])  # the last id
    tokenizer.save(str(path))


def tokens_of(tales, tokenizer):
    eot = tokenizer.token_to_id(EOT)
    return np.concatenate([[*e.ids, eot] for e in tokenizer.encode_batch(tales)])


def make_model(sizes):
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=N_VOCAB, n_positions=N_CTX, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            bos_token_id=N_VOCAB - 1, eos_token_id=N_VOCAB - 1,
            activation_function="gelu_pytorch_tanh", **sizes,  # "gelu_new", but computed faster
        )
    ).to(DEVICE)  # fmt: skip


def batches(epoch, n_steps, rng):
    """BATCH of the numbers of epoch() at a time, in random order. A new epoch begins where too few are left."""
    left = []
    for _ in range(n_steps):
        if len(left) < BATCH:
            left = list(rng.permutation(epoch()))
        yield torch.tensor([left.pop() for _ in range(BATCH)])


def windows_of(ids, n_steps, rng):
    """Windows of N_CTX tokens in random order. Each epoch cuts the text at another random offset."""
    for starts in batches(
        lambda: np.arange(rng.integers(N_CTX), len(ids) - N_CTX, N_CTX), n_steps, rng
    ):
        yield torch.tensor(np.stack([ids[s : s + N_CTX] for s in starts]), device=DEVICE)


def autocast():
    return torch.autocast(DEVICE, torch.bfloat16)


@torch.no_grad()
def held_out(ids, score):
    """The mean of score(windows) over all complete windows of ids."""
    windows = torch.tensor(ids[: len(ids) // N_CTX * N_CTX].reshape(-1, N_CTX), device=DEVICE)
    return np.mean([score(w) for w in windows.split(BATCH)], axis=0)


def cross_entropy(model, ids):
    with autocast():
        logits = model(input_ids=ids).logits
    return F.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())


def train(model, stream, n_steps, lr, loss_fn, report, every=250):
    """Train with Muon for the matrices of the blocks and AdamW for the other weights.

    The learning rate rises to lr in 50 steps and then falls linearly to 0. stream yields n_steps arguments for loss_fn.
    """
    matrices = [p for n, p in model.transformer.h.named_parameters() if p.ndim == 2]
    held = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in held]
    optimizers = [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=0.01),
    ]
    begun, losses = time.time(), []
    for step, batch in enumerate(stream, 1):
        for group in (g for o in optimizers for g in o.param_groups):
            group["lr"] = lr * min(step / 50, (n_steps - step + 1) / n_steps)
        loss = loss_fn(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        losses.append(loss.item())
        if step % 20 == 0 or step == n_steps:
            print(
                f"step {step}/{n_steps} loss {np.mean(losses[-20:]):.4f} {time.time() - begun:.0f} s",
                flush=True,
            )
        if step % every == 0 or step == n_steps:
            model.eval()
            print(f"held out: {report()}", flush=True)
            model.train()


@torch.no_grad()
def write_text(target, ids, n_tokens, rng, do_sample):
    """Let the target write sequences of N_CTX tokens. Half of them continue a tale from its beginning."""
    tales = (
        np.flatnonzero(ids == N_VOCAB - 1)[:-3] + 1
    )  # where tales begin; the last few may be too short
    sequences = []
    while len(sequences) * N_CTX < n_tokens:
        if rng.random() < 0.5:
            n_prompt, starts = int(rng.integers(4, 40)), rng.choice(tales, size=96)
        else:
            n_prompt = int(rng.integers(4, 100))
            starts = rng.integers(len(ids) - n_prompt, size=96)
        prompts = torch.tensor(np.stack([ids[s : s + n_prompt] for s in starts]), device=DEVICE)
        with autocast():
            out = target.generate(
                prompts, attention_mask=torch.ones_like(prompts), do_sample=do_sample, top_k=0, eos_token_id=None,
                max_new_tokens=N_CTX - n_prompt, min_new_tokens=N_CTX - n_prompt, pad_token_id=N_VOCAB - 1,
            )  # fmt: skip
        sequences += list(out.cpu().numpy())
        print(
            f"{'sampled' if do_sample else 'greedy'}: {len(sequences) * N_CTX} of {n_tokens} tokens",
            flush=True,
        )
    return np.concatenate(sequences)


@torch.no_grad()
def teach(target, windows):
    """The target's row at each position. Computed once for all epochs, because it is most of the work of a step."""
    q = torch.empty(*windows.shape, N_VOCAB, dtype=torch.float16)  # 4 KB per token, 13 GB in all
    for into, ids in zip(q.split(BATCH), windows.split(BATCH), strict=True):
        with autocast():
            into.copy_(target(input_ids=ids.to(DEVICE)).logits.float().softmax(-1))
    return q


def distill_loss(draft, ids, q, loss):
    """The loss: KL(q || p) + H(q), or in the later stages the total variation, which is 1 - alpha."""
    with autocast():
        logits = draft(input_ids=ids.to(DEVICE)).logits.float().flatten(0, 1)
    q = q.to(DEVICE).float().flatten(0, 1)
    return (
        F.cross_entropy(logits, q)
        if loss == "kl"
        else (logits.softmax(-1) - q).abs().sum(-1).mean() / 2
    )


def alpha(target, draft, ids):
    """alpha at T = 1, which is the mean of sum min(p, q), and at T = 0, which is the share of equal argmaxes."""
    with autocast():
        logits = [m(input_ids=ids).logits.float() for m in (draft, target)]
    p, q = (x.softmax(-1) for x in logits)
    same = (logits[0].argmax(-1) == logits[1].argmax(-1)).float().mean()
    return torch.stack([torch.minimum(p, q).sum(-1).mean(), same]).cpu().numpy()


def write_model(state, sizes, tokenizer_path, out_dir):
    """Write the five files of models/: OpenAI's, without those that only TensorFlow reads."""
    bpe = json.loads(tokenizer_path.read_text(encoding="utf-8"))["model"]
    files = {
        "encoder.json": json.dumps(bpe["vocab"] | {EOT: N_VOCAB - 1}),
        "vocab.bpe": "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in bpe["merges"]),
    }
    tensors = {}
    for name, value in state.items():
        if name != "lm_head.weight":  # the same tensor as wte
            name, value = openai_name(name.removeprefix("transformer.")), value.half().cpu().numpy()
            tensors[name] = (
                value[None] if name.endswith("/w") else value
            )  # OpenAI's layers are 1-d convolutions
    write_checkpoint(out_dir, dict(n_vocab=N_VOCAB, n_ctx=N_CTX, **sizes), tensors.items())
    for name, content in files.items():
        Path(out_dir, name).write_text(content, encoding="utf-8", newline="\n")


def main(args):
    work = Path(args.work)
    work.mkdir(parents=True, exist_ok=True)

    def seeded(step):
        """A new rng for each step, so that a step gives the same result whether earlier steps ran or were skipped."""
        torch.manual_seed(SEED + step)
        return np.random.default_rng(SEED + step)

    train_tales, test_tales = split_tales(args.corpus)
    if not (work / "bpe.json").exists():
        learn_bpe(train_tales, work / "bpe.json")
    tokenizer = Tokenizer.from_file(str(work / "bpe.json"))
    train_ids, test_ids = tokens_of(train_tales, tokenizer), tokens_of(test_tales, tokenizer)
    print(f"{len(train_ids)} training tokens, {len(test_ids)} held out, on {DEVICE}", flush=True)

    seeded(0)
    target = make_model(TARGET)
    for stage, (n_steps, dropout, lr) in enumerate(TARGET_STAGES, 1):
        target_file = work / f"target_{stage}.pt"
        if not target_file.exists():
            for name, module in target.named_modules():
                if isinstance(module, torch.nn.Dropout) and not name.endswith(
                    "attn_dropout"
                ):  # (slow on a CPU)
                    module.p = dropout
            train(
                target, windows_of(train_ids, n_steps, seeded(stage)), n_steps, lr,
                lambda ids: cross_entropy(target, ids),
                lambda: f"{held_out(test_ids, lambda w: cross_entropy(target, w).item()):.4f} nats per token",
            )  # fmt: skip
            torch.save(target.half().state_dict(), target_file)
        target.load_state_dict(
            torch.load(target_file, map_location=DEVICE)
        )  # these weights are rounded to float16
        target.float()
    target.eval()

    if not (work / "written.npy").exists():
        rng = seeded(10)
        written = [write_text(target, train_ids, N_WRITTEN / 2, rng, s) for s in (False, True)]
        np.save(work / "written.npy", np.concatenate(written))
    written = np.load(work / "written.npy")

    rng = seeded(11)
    draft = make_model(DRAFT)
    if not (work / "draft.pt").exists():
        n_held = (
            len(written) // N_CTX // 20 * N_CTX
        )  # the number of greedy tokens held out for the report
        n_corpus = len(train_ids) // N_CTX
        texts = np.concatenate([train_ids[: n_corpus * N_CTX], written[n_held:]])
        windows = torch.tensor(texts.reshape(-1, N_CTX))
        q = teach(target, windows)
        numbers = np.append(
            np.arange(n_corpus), np.tile(np.arange(n_corpus, len(windows)), WRITTEN_WEIGHT)
        )
        for n_steps, loss, lr in DRAFT_STAGES:
            train(
                draft, batches(lambda: numbers, n_steps, rng), n_steps, lr,
                lambda i, loss=loss: distill_loss(draft, windows[i], q[i], loss),
                lambda: "alpha at T = 1 and T = 0: corpus {:.3f} {:.3f}, greedy text {:.3f} {:.3f}".format(
                    *held_out(test_ids, lambda w: alpha(target, draft, w)),
                    *held_out(written[:n_held], lambda w: alpha(target, draft, w)),
                ),
                every=800,
            )  # fmt: skip
        torch.save(draft.half().state_dict(), work / "draft.pt")

    for name, file, sizes in ("target", target_file, TARGET), ("draft", work / "draft.pt", DRAFT):
        write_model(
            torch.load(file, map_location="cpu"), sizes, work / "bpe.json", f"{args.out}/{name}"
        )


if __name__ == "__main__":
    report(lambda: main(args), "python -m studies.making.train_bundled")
