"""Run the adapter of docs/your_models.md on random models of transformers, and compare with `generate`.

pip install torch transformers
python -m benchmarks.your_models
"""

import argparse
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from sampling import as_model
    from speculative import speculative_sampling

    page = (ROOT / "docs" / "your_models.md").read_text(encoding="utf-8")
    exec(re.search(r"```python\n([^`]*class Network.*?)```", page, re.DOTALL)[1], shown := {})
    torch.manual_seed(0)
    sizes = dict(vocab_size=101, n_positions=256, n_embd=32, n_head=4, initializer_range=0.4)
    # in float64, or almost equal logits may change places from pass to pass
    draft, target = (GPT2LMHeadModel(GPT2Config(n_layer=n, **sizes)).double().eval() for n in (1, 3))
    x = [5, 17, 3]
    expected = target.generate(
        torch.tensor([x]), max_new_tokens=200, do_sample=False, eos_token_id=None, pad_token_id=0
    )[0].tolist()
    for name, guess in {"another model": draft, "the target itself": target}.items():
        rounds = []
        models = [as_model(shown["Network"](model), temperature=0) for model in (guess, target)]
        ids = speculative_sampling(x, *models, N=200, K=4, on_round=rounds.append).tolist()
        same = "the same tokens as generate" if ids == expected else "OTHER tokens than generate"
        print(f"draft: {name}. {len(rounds)} rounds for 200 tokens, {same}")
        assert ids == expected


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
