"""Decode with a target model alone, then with a draft model ahead of it, and compare: the same text, sooner.

With no model sizes given, the trained pair in models/ runs, which needs no network. With --target_model_size 1558M
OpenAI's released GPT-2 runs, after a download (6.2 GB, and 0.5 GB for the 124M that drafts).

examples:
  python main.py --K 4
  python main.py --prompt "The old woman" --temperature 0.8 --top_p 0.9
  python main.py --target_model_size 1558M --K 4 --prompt "Alan Turing theorized that computers would one day become"
"""

if __name__ == "__main__":  # before the imports, which take longer than some people's patience
    import os
    import signal

    signal.signal(signal.SIGINT, lambda *_: (os.write(2, b"\nInterrupted.\n"), os._exit(130)))

import argparse
import sys
import time

import numpy as np
from tqdm import tqdm

from gpt2 import GPT2
from speculative import autoregressive_sampling, sampler, speculative_sampling, verify, verify_block
from utils import BUNDLED, MODELS_DIR, RELEASED, load_encoder_hparams_and_params

PROMPT = "Once upon a time there was a king who had three sons"


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = fail
    add = parser.add_argument
    add("--prompt", default=PROMPT, help="the text to continue; an empty one starts from <|endoftext|> (%(default)r)")
    add("--n_tokens_to_generate", type=int, default=200, metavar="N", help="how many tokens to decode (%(default)s)")
    sizes = f"{', '.join(RELEASED)}, or the bundled {' or '.join(BUNDLED)}"
    add("--draft_model_size", metavar="SIZE", help=f"the small model that guesses: {sizes}")
    add("--target_model_size", metavar="SIZE", help="the large model that checks, and whose text it is: likewise")
    add("--models_dir", default=MODELS_DIR, metavar="DIR", help="where models are, and are downloaded to (%(default)s)")
    add("--models_url", metavar="URL", help="where to download from (OpenAI, or the variable GPT2_MODELS_URL)")
    add("--K", type=int, default=4, help="how many tokens to draft per round (%(default)s)")
    add("--temperature", type=float, default=0.0, metavar="T", help="0: the likeliest token; 1: sample (%(default)s)")
    add("--top_k", type=int, default=0, metavar="k", help="sample among the k likeliest; 0: among all (%(default)s)")
    add("--top_p", type=float, default=1.0, metavar="p", help="sample among the fewest that have mass p (%(default)s)")
    how = "check drafted tokens one by one (Chen et al. 2023) or jointly (Sun et al. 2024) (%(default)s)"
    add("--verify", choices=("token", "block"), default="token", help=how)
    add("--seed", type=int, default=123, help="of the random generator, for both loops (%(default)s)")
    args = parser.parse_args(argv)

    if args.n_tokens_to_generate < 0:
        fail(f"--n_tokens_to_generate is {args.n_tokens_to_generate}; it takes 0 or more")
    if args.K < 0:
        fail(f"--K is {args.K}; it takes 0 or more")
    if not 0 <= args.temperature < np.inf:
        fail(f"--temperature is {args.temperature}; it takes a number from 0 up")
    if args.top_k < 0:
        fail(f"--top_k is {args.top_k}; it takes 0 or more")
    if not 0 < args.top_p <= 1:
        fail(f"--top_p is {args.top_p}; it takes a number above 0, up to 1")
    if args.seed < 0:
        fail(f"--seed is {args.seed}; it takes 0 or more")

    released = args.draft_model_size in RELEASED or args.target_model_size in RELEASED
    args.draft_model_size = args.draft_model_size or ("124M" if released else "draft")
    args.target_model_size = args.target_model_size or ("1558M" if released else "target")
    return args


def fail(message):
    print(f"main.py: error: {message}", file=sys.stderr)
    sys.exit(2)


def main(argv=None):
    args = arguments(argv)
    try:
        run(args)
    except (ValueError, OSError) as error:  # what the user gave, or the network and the disk; our own mistakes show
        fail(error)


def run(args):
    draft_encoder, draft_hparams, draft_params = load(args.draft_model_size, args)
    encoder, hparams, params = load(args.target_model_size, args)
    if draft_encoder.ids != encoder.ids:
        fail(f"{args.draft_model_size} and {args.target_model_size} differ in their vocabularies, and must not")
    N, n_ctx = args.n_tokens_to_generate, min(hparams["n_ctx"], draft_hparams["n_ctx"])
    x = np.array(encoder.encode(args.prompt) or [encoder.ids["<|endoftext|>"]])
    if len(x) + N > n_ctx:
        fail(f"a prompt of {len(x)} tokens and {N} to generate are {len(x) + N}, and the models take {n_ctx} at most")

    networks = GPT2(draft_params, draft_hparams), GPT2(params, hparams)
    draft_model, target_model = (sampler(net, args.temperature, args.top_k, args.top_p) for net in networks)
    rounds = []

    def decode(N, title, sampling, *models, **options):
        for net in networks:
            net.forget()
        with tqdm(total=N, desc=title, unit="token", leave=False) as bar:
            rounds.clear()
            begun = time.perf_counter()
            ids = sampling(
                x, *models, N, rng=np.random.default_rng(args.seed), **options,
                on_round=lambda r: (rounds.append(r), bar.update(len(r.emitted))),
            )  # fmt: skip
            return ids, time.perf_counter() - begun

    speculation = dict(K=args.K, verify=verify_block if args.verify == "block" else verify)
    loops = [
        ("Autoregressive Decode", autoregressive_sampling, (target_model,), {}),
        ("Speculative Decode", speculative_sampling, (draft_model, target_model), speculation),
    ]
    for _, sampling, models, options in loops:  # the first touch of the weights is loading, not decoding
        decode(min(N, 8), "Warming up", sampling, *models, **options)
    seconds, texts = [], []
    for title, sampling, models, options in loops:
        ids, t = decode(N, title, sampling, *models, **options)
        seconds.append(t)
        texts.append(encoder.decode(ids if args.prompt else ids[1:]))
        print(f"\n{title}\n{'-' * len(title)}\nTime = {t:.2f}s\nText = {texts[-1]}", flush=True)

    n_drafted = sum(len(r.drafted) for r in rounds)
    n_accepted = sum(len(r.emitted) - 1 for r in rounds)
    print(f"""
models            {args.draft_model_size} drafts for {args.target_model_size}
tokens per second {N / seconds[0]:.1f} autoregressive, {N / seconds[1]:.1f} speculative
speedup           {seconds[0] / seconds[1]:.2f}
acceptance rate   {n_accepted / max(n_drafted, 1):.2f} of {n_drafted} drafted tokens
tokens per round  {N / max(len(rounds), 1):.2f}, with K = {args.K}""")
    if args.temperature == 0:
        print(f"same text         {'yes' if texts[0] == texts[1] else 'NO: a bug, or a BLAS with a near-tie'}")
    else:
        print("same text         no, and it need not be: two samples from one distribution (0 is greedy, and the same)")


def load(size, args):
    return load_encoder_hparams_and_params(size, args.models_dir, args.models_url)


if __name__ == "__main__":
    main()
