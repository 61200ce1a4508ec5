"""Decode with a target model alone, then with a draft model that guesses ahead, and compare.

At temperature 0, both give the same text. With a good draft, the second one takes less time.

Without any model sizes, the trained pair in models/ runs, which needs no download. With --target_model_size 1558M,
OpenAI's released GPT-2 runs, after a download (6.2 GB, and 0.5 GB for the 124M that drafts).

examples:
  python main.py --K 4
  python main.py --prompt "The old woman" --temperature 0.8 --top_p 0.9
  python main.py --K auto
  python main.py --draft ngram
  python main.py --K 8 --schedule adaptive
  python main.py --temperature 1 --trace trace.html
  python main.py --target_model_size 1558M --K 4 --prompt "Alan Turing theorized that computers would one day become"
"""

import os

if __name__ == "__main__":  # Ctrl-C may come while NumPy is still being imported
    import signal

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # background jobs of a script ignore Ctrl-C
        signal.signal(signal.SIGINT, lambda *_: (os.write(2, b"\nInterrupted.\n"), os._exit(130)))

import sys
from functools import partial
from pathlib import Path

if sys.version_info < (3, 10):
    sys.exit("main.py: error: Python 3.10 or newer is needed, and this is " + sys.version.split()[0])

import numpy as np
from tqdm import tqdm

from command_line import DEFAULT_K, arguments, fail
from encoder import EOT
from errors import UserError
from pair import load_pair
from show.figures import best_K_figure, figures
from show.page import page
from show.picture import picture
from show.rounds import Recorder, origins
from show.terminal import Writer, legend, wants_colour
from speculative import verify, verify_block

PILOT = 96  # tokens of the pilot run of --K auto


def main(argv=None):
    args = arguments(argv, __doc__)
    try:
        run(args)
    except BrokenPipeError:  # nobody reads the output any more, as with "| head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python still writes at exit goes nowhere
        sys.exit(1)
    except (UserError, OSError) as error:  # what the user gave, the internet, the disk
        fail(error)
    except MemoryError:
        fail("there is not enough memory for these models; choose smaller ones (1558M needs 8 GB)")


def run(args):
    if args.trace:  # if it cannot be written, say so before anything takes time
        existed = os.path.lexists(args.trace)
        open(args.trace, "a", encoding="utf-8").close()
        if not existed:
            os.remove(args.trace)
    pair = load_pair(
        args.draft_model_size, args.target_model_size, draft=args.draft, corpus=args.draft_corpus,
        models_dir=args.models_dir, models_url=args.models_url, bit_identical=args.bit_identical,
        temperature=args.temperature, top_k=args.top_k, top_p=args.top_p, repetition_penalty=args.repetition_penalty,
    )  # fmt: skip
    x = np.array(pair.encoder.encode(args.prompt) or [pair.encoder.ids[EOT]])
    n = args.n_tokens_to_generate
    if len(x) + n > pair.n_ctx:
        fail(f"the prompt has {len(x)} tokens and {n} more are wanted; these models hold {pair.n_ctx} in all")
    eos = pair.encoder.ids[EOT] if args.eos else None
    shared = {"eos": eos, "verify": verify_block if args.verify == "block" else verify}
    best_K = []  # the figure that --K auto adds
    if args.K == "auto":
        n_pilot, rng = min(n, PILOT), np.random.default_rng(args.seed)
        with tqdm(total=2 * n_pilot, desc="Pilot runs", unit="token", leave=False, disable=None) as bar:
            args.K, speedups = pair.best_K(x, n_pilot, rng=rng, on_round=lambda r: bar.update(len(r.emitted)), **shared)
        if not speedups[1:].any():
            args.K = min(DEFAULT_K, n)  # the pilot run was too short to tell
        best_K = [best_K_figure(args.K, speedups)]
    speculative = shared | {"K": args.K, "schedule": args.schedule, "threshold": args.threshold}
    for options in shared, speculative:  # a warm-up, because the first use of the weights is slow
        pair.decode(x, min(n, 8), rng=np.random.default_rng(args.seed), **options)
    plain, _ = decode(args, pair, x, "Autoregressive Decode", shared)
    fast, rounds = decode(args, pair, x, "Speculative Decode", speculative)
    draft = args.draft_model_size if args.draft == "model" else args.draft
    found = figures(plain, fast, draft, args.target_model_size, args.K, args.schedule, args.temperature) + best_K
    print("\n" + "\n".join(f"{name:<17} {value}" for name, value, _ in found), flush=True)
    if args.trace:
        if args.trace.endswith(".html"):
            content = page(pair.encoder, x, plain, fast, rounds, found, args.command)
        else:
            content = picture(pair.encoder, x, rounds)
        # errors="replace", because the page shows the command line, and a file name in it may not be UTF-8
        Path(args.trace).write_text(content, encoding="utf-8", errors="replace")
        print(f"trace             written to {args.trace}", flush=True)


def decode(args, pair, x, title, options):
    """Decode with one of the two loops, and print the text: on a terminal as it comes, otherwise at the end.

    Returns a pair.Run, and the rounds that --trace shows: a list of show.rounds.Seen, or None.
    """
    live, held_back = sys.stdout.isatty(), []
    write = partial(print, end="", flush=True) if live else held_back.append
    is_fast = "K" in options
    coloured = is_fast and wants_colour(args.color, sys.stdout)
    writer = Writer(pair.encoder, write, coloured)
    rng = np.random.default_rng(args.seed)
    recorder = Recorder(rng, options["verify"]) if args.trace and is_fast else None
    head = f"\n{title}\n{'-' * len(title)}\n" + (f"({legend()})\n" if coloured else "")
    if live:
        print(f"{head}Text = ", end="")
    writer.add(x if args.prompt else x[1:])  # without the <|endoftext|> that stands for an empty prompt
    no_bar = live or None  # (None: tqdm shows a bar only if standard error is a terminal)
    with tqdm(total=args.n_tokens_to_generate, desc=title, unit="token", leave=False, disable=no_bar) as bar:

        def on_round(r):  # the clock of the run does not count the time that this takes
            if recorder:
                recorder(r)
            writer.add(r.emitted, origins(r))
            bar.update(len(r.emitted))

        # (a recorder passes on the numbers of the rng, and notes them down)
        done = pair.decode(x, args.n_tokens_to_generate, rng=recorder or rng, on_round=on_round, **options)
    writer.close()
    time = f"Time = {done.seconds:.2f}s"
    print(f"\n{time}" if live else f"{head}{time}\nText = {''.join(held_back)}", flush=True)
    return done, recorder and recorder.rounds


if __name__ == "__main__":
    for name in "stdout", "stderr":
        if getattr(sys, name) is None:  # the caller has closed it, as with ">&-"
            setattr(sys, name, open(os.devnull, "w"))
    if hasattr(sys.stdout, "reconfigure"):  # (IDLE and Jupyter have a stdout of their own)
        sys.stdout.reconfigure(errors="replace")  # a text may have characters that a terminal or a file cannot show
    main()
