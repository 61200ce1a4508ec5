"""Write tests/fixtures/hf/: a tiny random GPT-2 by transformers, and its logits in float64.

pip install -r tools/requirements.txt
python -m tools.hf_fixture
"""

import argparse
import json
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "hf"
TEXT = "The cat sat on the mat. The hat that the cat has is on the cat, not on the mat; isn't that — naïve?\n"
HPARAMS = dict(vocab_size=272, n_positions=32, n_embd=24, n_head=3, n_layer=2)


def main():
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import GPT2Config, GPT2LMHeadModel

    OUT.mkdir(parents=True, exist_ok=True)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([TEXT], vocab_size=HPARAMS["vocab_size"] - 1, min_frequency=1, show_progress=False)
    tokenizer.save_model(str(OUT))
    vocabulary = json.loads((OUT / "vocab.json").read_text(encoding="utf-8"))
    vocabulary["<|endoftext|>"] = eot = len(vocabulary)
    (OUT / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(**HPARAMS, bos_token_id=eot, eos_token_id=eot)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(mean=float(".ln_" in name and name.endswith("weight")), std=0.2)  # biases too
    model.save_pretrained(OUT)
    (OUT / "generation_config.json").unlink()
    ids = np.array(tokenizer.encode(TEXT).ids[: HPARAMS["n_positions"]])
    with torch.no_grad():
        logits = model.double()(torch.tensor(ids[None])).logits[0].numpy()
    np.savez_compressed(OUT / "golden.npz", text=TEXT, ids=ids, logits=logits)
    print(f"{OUT}: {len(ids)} ids, the largest logit is {abs(logits).max():.2f}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
