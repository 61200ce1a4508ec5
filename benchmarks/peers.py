"""Compare the forward pass with other engines: transformers on PyTorch, llama.cpp, and NumPy without a cache.

    pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.peers models/target models/1558M
    python -m benchmarks.peers    # the loops, with the bundled pair: ours and generate of transformers

Engines that are not installed are left out. All engines have the same weights in float32 and one thread per core (this
project: 8 at most). Each engine runs in its own process. This project and one other engine take turns, a few passes
each, because the memory of a shared machine may be twice as fast a minute later. The times are median milliseconds per
forward pass, over a few rows after 32 cached tokens and over a prompt. For a prompt, each engine computes only the
last row of logits, except "naive", which computes all rows. "naive" is gpt2.gpt2 with plain arrays: it multiplies with
NumPy's x @ w, and computes the whole text in each pass.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks.tables import table
from checkpoint.read import read

CONTEXT, TURNS, PASSES = 32, 12, 4
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def ours(hparams, params):
    from gpt2 import GPT2

    net = GPT2(params, hparams)

    def forward(ids, n_new):
        if n_new == len(ids):
            net.forget()
        return net(ids, 1 if n_new == len(ids) else n_new)

    return forward


def naive(hparams, params):
    from gpt2 import gpt2

    params = as_float32(params)
    return lambda ids, n_new: gpt2(ids, **params, n_head=hparams["n_head"])[-n_new:]


def as_float32(tree):
    if isinstance(tree, np.ndarray):
        return np.ascontiguousarray(tree, dtype=np.float32)
    if isinstance(tree, list):
        return list(map(as_float32, tree))
    return {name: as_float32(branch) for name, branch in tree.items()}


def torch_gpt2(hparams, params):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, logging

    logging.set_verbosity_error()
    torch.set_num_threads(THREADS)
    sizes = {name: hparams[name] for name in ("n_embd", "n_layer", "n_head")}
    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(vocab_size=hparams["n_vocab"], n_positions=hparams["n_ctx"], **sizes))
    state = {}
    for name in model.state_dict():
        leaf = params
        path = name.removeprefix("transformer.").replace("lm_head", "wte").split(".")
        for part in path:
            if part == "h":
                leaf = leaf["blocks"]
            elif part.isdigit():
                leaf = leaf[int(part)]
            elif part in ("weight", "bias"):
                if isinstance(leaf, dict):
                    leaf = leaf["b" if part == "bias" else "w" if "w" in leaf else "g"]
            else:
                leaf = leaf[part]
        state[name] = torch.from_numpy(leaf.astype(np.float32))
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    return model.eval()


def transformers(hparams, params):
    import torch
    from transformers import DynamicCache

    model, cache = torch_gpt2(hparams, params), DynamicCache()

    @torch.inference_mode()
    def forward(ids, n_new):
        if (n_surplus := cache.get_seq_length() - (len(ids) - n_new)) > 0:
            cache.crop(-n_surplus)
        new = torch.from_numpy(ids[cache.get_seq_length() :])[None]
        return model(new, cache=cache, logits_to_keep=1 if n_new == len(ids) else n_new).logits[0].numpy()

    return forward


def llama_cpp(hparams, params):
    import gguf
    import llama_cpp

    writer = gguf.GGUFWriter(None, "gpt2")
    writer.add_block_count(hparams["n_layer"])
    writer.add_context_length(hparams["n_ctx"])
    writer.add_embedding_length(hparams["n_embd"])
    writer.add_feed_forward_length(4 * hparams["n_embd"])
    writer.add_head_count(hparams["n_head"])
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"<{i}>" for i in range(hparams["n_vocab"])])
    writer.add_token_merges(["a b"])

    def add(name, array):
        writer.add_tensor(name, np.ascontiguousarray(array, dtype=np.float32))

    add("token_embd.weight", params["wte"])
    add("position_embd.weight", params["wpe"])
    norms = {"output_norm": params["ln_f"]}
    for i, block in enumerate(params["blocks"]):
        norms |= {f"blk.{i}.attn_norm": block["ln_1"], f"blk.{i}.ffn_norm": block["ln_2"]}
        layers = {"attn_qkv": block["attn"]["c_attn"], "attn_output": block["attn"]["c_proj"]}
        layers |= {"ffn_up": block["mlp"]["c_fc"], "ffn_down": block["mlp"]["c_proj"]}
        for name, layer in layers.items():
            add(f"blk.{i}.{name}.weight", layer["w"].T)
            add(f"blk.{i}.{name}.bias", layer["b"])
    for name, norm in norms.items():
        add(f"{name}.weight", norm["g"])
        add(f"{name}.bias", norm["b"])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:  # llama.cpp keeps the deleted file mapped
        path = os.path.join(work, "model.gguf")
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        llama = llama_cpp.Llama(
            path, n_ctx=hparams["n_ctx"], n_batch=hparams["n_ctx"], n_ubatch=hparams["n_ctx"], n_threads=THREADS,
            n_threads_batch=THREADS, logits_all=True, verbose=False,
        )  # fmt: skip

    def forward(ids, n_new):
        llama.n_tokens = min(llama.n_tokens, len(ids) - n_new)
        llama._logits_all = n_new < len(ids)  # for a prompt only the last row (there is no public switch)
        llama.eval(ids[llama.n_tokens :].tolist())
        if llama._logits_all:
            return llama.scores[len(ids) - n_new : len(ids)]
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(llama.ctx, -1), (1, hparams["n_vocab"]))

    return forward


PACKAGES = {"transformers": "transformers", "llama.cpp": "llama_cpp"}  # needed for these engines
ENGINES = {"ours": ours, "transformers": transformers, "llama.cpp": llama_cpp, "naive": naive}


def serve(engine, directory):
    """For each line `[n, n_new, n_passes]` on standard input, print the seconds of each pass and some logits."""
    hparams, params = read(directory)
    forward = ENGINES[engine](hparams, params)
    ids = np.random.default_rng(0).integers(hparams["n_vocab"], size=hparams["n_ctx"])
    for line in sys.stdin:
        (n, n_new, n_passes), seconds = json.loads(line), []
        for _ in range(n_passes):
            begun = time.perf_counter()
            logits = forward(ids[:n], n_new)  # each engine first goes back to n - n_new tokens
            seconds.append(time.perf_counter() - begun)
        print(json.dumps([seconds, logits[:, :5].tolist()]), flush=True)


def our_loop(target, draft):
    from gpt2 import GPT2
    from sampling import as_model
    from speculative import speculative_sampling

    networks = [GPT2(params, hparams) for hparams, params in (target, draft)]
    target, draft = (as_model(network, temperature=0) for network in networks)

    def decode(ids, N, K):
        for network in networks:
            network.forget()
        return speculative_sampling(ids, draft, target, N, K).tolist()

    return decode


def loop_of_transformers(target, draft):
    import torch

    target, draft = torch_gpt2(*target), torch_gpt2(*draft)
    constant = dict(num_assistant_tokens_schedule="constant", assistant_confidence_threshold=0.0)

    def decode(ids, N, K):
        draft.generation_config.update(num_assistant_tokens=K, **constant)
        ids = torch.tensor([ids])
        given = {"assistant_model": draft} if K else {}
        out = target.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=N, eos_token_id=None,
            pad_token_id=0, **given,
        )  # fmt: skip
        return out[0].tolist()

    return decode


LOOPS = {"ours": our_loop, "transformers": loop_of_transformers}


def serve_loop(engine, target, draft):
    """For each line `[ids, N, K]` on standard input, print the seconds and the text."""
    decode = LOOPS[engine](read(target), read(draft))
    for line in sys.stdin:
        case = json.loads(line)
        begun = time.perf_counter()
        ids = decode(*case)
        print(json.dumps([[time.perf_counter() - begun], ids]), flush=True)


def compare_loops(N=100, K=4):
    """Tokens per second of both loops, in turns. All four texts have to be the same."""
    from main import PROMPT
    from utils import load_encoder_hparams_and_params

    ids = load_encoder_hparams_and_params("target")[0].encode(PROMPT)
    pair = "models/target", "models/draft"
    with start("ours", *pair) as us, start("transformers", *pair) as them:
        seconds, texts = [], set()
        for _ in range(TURNS + 1):
            found = [ask(process, ids, N, k) for process in (us, them) for k in (0, K)]
            seconds.append([time for time, _ in found])
            texts |= {tuple(text) for _, text in found}
    assert len(texts) == 1, "the texts differ"
    seconds = np.array(seconds[1:]).reshape(TURNS, 2, 2)
    speed, gain = np.median(N / seconds, axis=0), np.median(seconds[..., 0] / seconds[..., 1], axis=0)
    rows = [[name, *map(round, speed[i].tolist()), float(gain[i])] for i, name in enumerate(LOOPS)]
    return table(["tokens per second", "plain", f"K = {K}", "speedup"], rows)


def start(engine, *directories):
    command = [sys.executable, "-m", "benchmarks.peers", "--engine", engine, *directories]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process, *case):
    time.sleep(0.1)  # until the other engine's threads sleep: after a product, they wait in a loop for a while
    print(json.dumps(case), file=process.stdin, flush=True)
    seconds, logits = json.loads(process.stdout.readline())
    return np.median(seconds[1:] or seconds), logits  # without the first pass of a turn


def compare(us, peer, n, n_new, n_passes, n_turns):
    """Seconds per pass in each turn [n_turns, 2]."""
    turns = []
    for _ in range(n_turns + 1):
        (ours, logits), (theirs, others) = ask(us, n, n_new, n_passes), ask(peer, n, n_new, n_passes)
        n_both = min(len(logits), len(others))  # after a prompt, only "naive" returns all rows
        assert np.abs(np.subtract(logits[-n_both:], others[-n_both:])).max() < 1e-2, "the engines' logits differ"
        turns.append([ours, theirs])
    return np.array(turns[1:])  # the first turn is left out, because it is slower


def main():
    if sys.argv[1:2] == ["--engine"]:
        return (serve if len(sys.argv) == 4 else serve_loop)(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="*", metavar="DIR", help="the directory of a model, such as models/target")
    args = parser.parse_args()
    if not args.directories:
        return print(compare_loops())
    peers = [e for e in ENGINES if e != "ours" and (e not in PACKAGES or importlib.util.find_spec(PACKAGES[e]))]
    for directory in args.directories:
        hparams, _ = read(directory)
        n_prompt = min(512, hparams["n_ctx"] - 9)
        cases = {f"{n} row{'s' * (n > 1)}": (CONTEXT + n, n, PASSES, TURNS) for n in (1, 5)}
        cases |= {f"prompt of {n_prompt}": (n_prompt, n_prompt, 1, 3 if hparams["n_layer"] > 12 else TURNS)}
        print(f"\n{directory}, {THREADS} threads, float32: our time divided by theirs (ours / theirs in ms)\n")
        rows = []
        with start("ours", directory) as us:
            for name in peers:
                with start(name, directory) as peer:
                    turns = [compare(us, peer, *case) for case in cases.values()]
                cells = [
                    "{:.2f} ({:.3g} / {:.3g})".format(np.median(t[:, 0] / t[:, 1]), *np.median(t * 1e3, axis=0))
                    for t in turns
                ]
                rows.append([name, *cells])
        print(table(["", *cases], rows, n_left=9))


if __name__ == "__main__":
    main()
