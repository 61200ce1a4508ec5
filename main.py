"""Decode with a target model alone, then with a draft model ahead of it, and compare: the same text, sooner.

With no model sizes given, the trained pair in models/ runs, which needs no network. With --target_model_size 1558M
OpenAI's released GPT-2 runs, after a download (6.2 GB, and 0.5 GB for the 124M that drafts).

examples:
  python main.py --K 4
  python main.py --prompt "The old woman" --temperature 0.8 --top_p 0.9
  python main.py --draft lookup --K 8
  python main.py --K 8 --schedule adaptive
  python main.py --target_model_size 1558M --K 4 --prompt "Alan Turing theorized that computers would one day become"
"""

if __name__ == "__main__":  # before the imports, which take longer than some people's patience
    import os
    import signal

    signal.signal(signal.SIGINT, lambda *_: (os.write(2, b"\nInterrupted.\n"), os._exit(130)))

import argparse
import os
import re
import sys
import time

import numpy as np
from tqdm import tqdm

from drafts import NGram, Online, early_exit, log_probs, lookup, ngram, not_found
from gpt2 import GPT2
from schedules import Overheard, Timed, adaptive, draft_confidence, heuristic, measured, target_confidence
from speculative import autoregressive_sampling, sampler, speculative_sampling, verify, verify_block
from theory import betas, expected_tokens
from utils import BUNDLED, MODELS_DIR, RELEASED, load_encoder_hparams_and_params

EOT = "<|endoftext|>"
ORDERS = {"unigram": 1, "bigram": 2, "ngram": 3}
SCHEDULES = ("fixed", "target-confidence", "draft-confidence", "heuristic", "adaptive")
PROMPT = "Once upon a time, long, long ago, there were two"


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = fail
    add = parser.add_argument
    add("--prompt", default=PROMPT, help="the text to continue; an empty one starts from <|endoftext|> (%(default)r)")
    add("--n_tokens_to_generate", type=int, default=154, metavar="N", help="how many tokens to decode (%(default)s)")
    how = f"the small model that guesses: {', '.join(RELEASED)}, or the bundled {' or '.join(BUNDLED)} "
    add("--draft_model_size", metavar="SIZE", help=how + "(draft; 124M if the target is one of OpenAI's)")
    how = "the large model that checks, and whose text it is: likewise (target; 1558M if the draft is one of OpenAI's)"
    add("--target_model_size", metavar="SIZE", help=how)
    add("--models_dir", default=MODELS_DIR, metavar="DIR", help="where models are, and are downloaded to (%(default)s)")
    add("--models_url", metavar="URL", help="where to download from (OpenAI, or the variable GPT2_MODELS_URL)")
    how = "what guesses: a model (of --draft_model_size), unigram, bigram, ngram (of order 3), online (n-grams of the "
    how += "text so far), lookup (in the text so far), or early-exit:L, the target's first L layers (%(default)s)"
    add("--draft", type=draft_name, default="model", help=how)
    how = "a text to fit unigram, bigram or ngram on (the bundled models have tables of their own)"
    add("--draft_corpus", metavar="FILE", help=how)
    add("--K", type=int, default=4, help="how many tokens to draft per round, at most (%(default)s)")
    how = "how many of the K to draft in which round: see schedules.py (%(default)s)"
    add("--schedule", choices=SCHEDULES, default="fixed", help=how)
    how = "the probability from which on target-confidence (0.5) and draft-confidence (0.4) go on drafting"
    add("--threshold", type=float, metavar="P", help=how)
    add("--temperature", type=float, default=0.0, metavar="T", help="0: the likeliest token; 1: sample (%(default)s)")
    add("--top_k", type=int, default=0, metavar="k", help="sample among the k likeliest; 0: among all (%(default)s)")
    add("--top_p", type=float, default=1.0, metavar="p", help="sample among the fewest that have mass p (%(default)s)")
    how = "above 1: tokens that have occurred become less likely (CTRL's penalty) (%(default)s)"
    add("--repetition_penalty", type=float, default=1.0, metavar="r", help=how)
    add("--eos", action="store_true", help=f"stop after {EOT}")
    how = "check drafted tokens one by one (Chen et al. 2023) or jointly (Sun et al. 2024) (%(default)s)"
    add("--verify", choices=("token", "block"), default="token", help=how)
    how = "refuse to run where NumPy's BLAS may round logits differently with and without speculation (see README.md)"
    add("--bit_identical", action="store_true", help=how)
    add("--seed", type=int, default=123, help="of the random generator, for both loops (%(default)s)")
    args = parser.parse_args(argv)

    for name, is_good, what in (
        ("n_tokens_to_generate", args.n_tokens_to_generate >= 0, "0 or more"),
        ("K", args.K >= 0, "0 or more"),
        ("temperature", 0 <= args.temperature < np.inf, "a number from 0 up"),
        ("top_k", args.top_k >= 0, "0 or more"),
        ("top_p", 0 < args.top_p <= 1, "a number above 0, up to 1"),
        ("threshold", args.threshold is None or 0 <= args.threshold <= 1, "a probability, 0 to 1"),
        ("repetition_penalty", 0.01 <= args.repetition_penalty <= 100, "a number from 0.01 to 100"),
        ("seed", args.seed >= 0, "0 or more"),
    ):
        if not is_good:
            fail(f"--{name} is {getattr(args, name)}; it takes {what}")
    if args.threshold is not None and not args.schedule.endswith("-confidence"):
        fail(f"--threshold is for target-confidence and draft-confidence, and --schedule is {args.schedule}")
    if args.draft_corpus is not None and args.draft not in ORDERS:
        fail(f"--draft_corpus is for --draft {', '.join(ORDERS)}, and --draft is {args.draft}")
    if args.draft_model_size is not None and args.draft != "model":
        fail(f"--draft_model_size is for --draft model, and --draft is {args.draft}")

    args.K = min(args.K, args.n_tokens_to_generate)  # no round has room for more
    released = args.draft_model_size in RELEASED or args.target_model_size in RELEASED
    args.draft_model_size = args.draft_model_size or ("124M" if released else "draft")
    args.target_model_size = args.target_model_size or ("1558M" if released else "target")
    return args


def draft_name(name):
    if not re.fullmatch(rf"model|online|lookup|early-exit:[0-9]+|{'|'.join(ORDERS)}", name):
        raise argparse.ArgumentTypeError(
            f"{name!r} is none of model, {', '.join(ORDERS)}, online, lookup, early-exit:L"
        )
    return name


def fail(message):
    print(f"main.py: error: {message}", file=sys.stderr)
    sys.exit(2)


def main(argv=None):
    args = arguments(argv)
    try:
        run(args)
    except (ValueError, OSError, RuntimeError) as error:  # what the user gave, the network, the disk, the BLAS
        fail(error)
    except MemoryError:
        fail("there is not enough memory for these models; 1558M takes 7 GB")


def run(args):
    drafting = load(args.draft_model_size, args) if args.draft == "model" else None
    encoder, hparams, params = load(args.target_model_size, args)
    if drafting and drafting[0].ids != encoder.ids:
        fail(f"{args.draft_model_size} and {args.target_model_size} differ in their vocabularies, and must not")
    N, n_ctx = args.n_tokens_to_generate, min(hparams["n_ctx"], drafting[1]["n_ctx"] if drafting else hparams["n_ctx"])
    if EOT not in encoder.ids:
        fail(f"the vocabulary of {args.target_model_size} lacks {EOT}; remove its encoder.json, and fetch it again")
    x = np.array(encoder.encode(args.prompt) or [encoder.ids[EOT]])
    if len(x) + N > n_ctx:
        fail(f"a prompt of {len(x)} tokens and {N} to generate are {len(x) + N}, and the models take {n_ctx} at most")

    target = GPT2(params, hparams, args.bit_identical)
    draft = GPT2(drafting[2], drafting[1], args.bit_identical) if drafting else other_draft(args, encoder, target)
    heard = Overheard(draft), Overheard(target)
    draft_model, target_model = (
        Timed(sampler(net, args.temperature, args.top_k, args.top_p, args.repetition_penalty)) for net in heard
    )
    if args.draft == "lookup":
        draft_model = Timed(draft)  # certain, or not at all: no temperature changes that
    rounds, alphas = [], []

    def decode(N, title, sampling, *models, **options):
        for net in (draft, target):
            if isinstance(net, GPT2):
                net.forget()
        draft_model.restart()
        target_model.restart()
        rounds.clear()
        alphas.clear()
        with tqdm(total=N, desc=title, unit="token", leave=False) as bar:

            def note(r):
                bar.update(len(r.emitted))
                alphas.extend(betas([r]))
                rounds.append(r._replace(p=None, q=None))  # which may be a gigabyte in all

            begun = time.perf_counter()
            ids = sampling(x, *models, N, rng=np.random.default_rng(args.seed), on_round=note, **options)
            return ids, time.perf_counter() - begun

    ending = dict(eos=encoder.ids[EOT] if args.eos else None)
    speculation = dict(K=args.K, verify=verify_block if args.verify == "block" else verify) | ending
    speculation |= schedule_and_stop(args, *heard, measured(draft_model, target_model))
    loops = [
        ("Autoregressive Decode", autoregressive_sampling, (target_model,), ending),
        ("Speculative Decode", speculative_sampling, (draft_model, target_model), speculation),
    ]
    for _, sampling, models, options in loops:  # the first touch of the weights is loading, not decoding
        decode(min(N, 8), "Warming up", sampling, *models, **options)
    seconds, texts, n_new = [], [], []
    for title, sampling, models, options in loops:
        ids, t = decode(N, title, sampling, *models, **options)
        seconds.append(t)
        n_new.append(len(ids) - len(x))
        texts.append(encoder.decode(ids if args.prompt else ids[1:]))
        print(f"\n{title}\n{'-' * len(title)}\nTime = {t:.2f}s\nText = {texts[-1]}", flush=True)

    report(args, seconds, n_new, rounds, alphas, draft_model, target_model)
    same = texts[0] == texts[1]
    if args.temperature == 0:
        print(f"same text         {'yes' if same else 'NO: a bug, or a BLAS with a near-tie'}")
    else:
        print(f"same text         {'yes' if same else 'no'}, and it need not be: two samples from one distribution")


def report(args, seconds, n_new, rounds, alphas, draft_model, target_model):
    """Print the figures; of seconds and n_new [2] the first are the autoregressive loop's."""
    n_drafted = sum(len(r.drafted) for r in rounds)
    n_accepted = sum(len(r.emitted) - 1 for r in rounds)
    rates = [n / t for n, t in zip(n_new, seconds)]
    shares = [100 * model.seconds / seconds[1] for model in (draft_model, target_model)]
    drafter = args.draft_model_size if args.draft == "model" else args.draft
    print(f"""
models            {drafter} drafts for {args.target_model_size}
tokens per second {rates[0]:.1f} autoregressive, {rates[1]:.1f} speculative
speedup           {rates[1] / max(rates[0], 1e-9):.2f}, {predicted(rounds, alphas, draft_model, target_model)}
time              {shares[0]:.0f} % draft, {shares[1]:.0f} % target, {100 - sum(shares):.0f} % the rest
acceptance rate   {n_accepted / max(n_drafted, 1):.2f} of {n_drafted} drafted tokens
tokens per round  {n_new[1] / max(len(rounds), 1):.2f}, with K = {args.K}, {args.schedule}""")


def other_draft(args, encoder, target):
    """The draft that is not --draft model: a network, to which the temperature applies (but for lookup, a model)."""
    n_vocab = len(encoder.ids)
    if args.draft.startswith("early-exit"):
        return early_exit(target, int(args.draft.split(":")[1]))
    if args.draft == "lookup":
        return lookup(n_vocab)
    if args.draft == "online":
        return log_probs(Online(n_vocab))
    if args.draft_corpus is not None:
        with open(args.draft_corpus, encoding="utf-8") as f:
            texts = [encoder.encode(text.strip("\n")) for text in f.read().split(EOT)]
        return log_probs(ngram([id for text in texts for id in [*text, encoder.ids[EOT]]], n_vocab, ORDERS[args.draft]))
    table = NGram.load(os.path.join(MODELS_DIR, "ngrams.npz"), ORDERS[args.draft])
    if table.n_vocab != n_vocab:
        fail(f"the bundled tables are for the bundled models; fit --draft {args.draft} with --draft_corpus FILE")
    return log_probs(table)


def schedule_and_stop(args, draft, target, costs):
    """What `speculative_sampling` takes to follow --schedule."""
    greedy, threshold = args.temperature == 0, {} if args.threshold is None else {"threshold": args.threshold}
    if args.schedule == "draft-confidence":
        rows = draft.rows if greedy and args.draft != "lookup" else None
        return {"stop": draft_confidence(**threshold, rows=rows)}
    schedule = {
        "fixed": None,
        "target-confidence": target_confidence(args.K, **threshold, rows=target.rows if greedy else None),
        "heuristic": heuristic(args.K),
        "adaptive": adaptive(args.K, costs),
    }[args.schedule]
    return {"schedule": schedule, "stop": not_found if args.draft == "lookup" else None}


def predicted(rounds, alphas, draft, target):
    """The speedup by theory.py, from each round's k, alpha of all verified positions, and what a step takes."""
    ks = np.array([len(r.drafted) for r in rounds], dtype=int)
    if not ks.any():
        return "1.00 predicted: nothing was drafted"
    if not (draft.recent and target.recent):
        return "no prediction: the text is too short to time a step"
    alpha = np.mean(alphas)
    c, v = measured(draft, target)(max(ks))
    gain = expected_tokens(alpha, ks).sum() / (ks * c + v[ks]).sum()
    return f"{gain:.2f} predicted by alpha = {alpha:.2f}, c = {c:.2f}, v = {v[-1]:.2f}"


def load(size, args):
    return load_encoder_hparams_and_params(size, args.models_dir, args.models_url)


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # a text may have characters that a terminal or a file cannot show
    main()
