"""Write tests/fixtures/hf/: tiny random GPT-2s by transformers, ids by its tokenizers, and logits in float64.

    pip install -r studies/making/requirements.txt && python -m studies.making.hf_fixture
    pip install "transformers<5" && python -m studies.making.hf_fixture  # writes older/ alone

plain/ has vocab.json and merges.txt as the library tokenizers saves them. chat/ is as
transformers 5 saves a model that was prepared for chats: added tokens, one of which ends
a text, one that comes before each text, and rows filled up to a multiple of 64. older/
has the files of transformers 4, with a space before each text. shards/ is in two files.
"""

import argparse
import json
import shutil
from pathlib import Path

OUT = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "hf"
TEXT = "The cat sat on the mat. The hat that the cat has is on the cat, not on the mat; isn't that — naïve?\n"
TEXTS = [
    TEXT,
    "",
    " The",
    "a [PAD]b<|im_end|> <|endoftext|>c",
    "x <mask> y",
    "The cat<|im_end|>\n<|im_start|> sat",
]
SIZES = dict(n_positions=48, n_embd=8, n_head=2, n_layer=2)


def main():
    import torch
    import transformers
    from tokenizers import ByteLevelBPETokenizer, processors
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, GPT2TokenizerFast

    golden = OUT / "golden.json"
    found = json.loads(golden.read_text(encoding="utf-8")) if golden.exists() else {}

    def write(name, tokenizer, n_rows=None, **options):
        torch.manual_seed(0)
        ends = dict(bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **ends, **SIZES)).eval()
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.normal_(
                    mean=float(".ln_" in key and key.endswith("weight")), std=0.4
                )  # biases too
        if n_rows:
            model.resize_token_embeddings(n_rows, mean_resizing=False)
        model.save_pretrained(OUT / name, **options)
        (OUT / name / "generation_config.json").unlink()
        tokenizer = AutoTokenizer.from_pretrained(OUT / name)
        ids = [tokenizer(text)["input_ids"] for text in TEXTS]
        with torch.no_grad():
            logits = model.double()(torch.tensor([ids[0][: SIZES["n_positions"]]])).logits[
                0, -1, : len(tokenizer)
            ]
        found[name] = {
            "ids": ids,
            "n_vocab": len(tokenizer),
            "eos": tokenizer.eos_token_id,
            "logits": logits.tolist(),
        }

    if int(transformers.__version__.split(".")[0]) < 5:
        older = GPT2TokenizerFast.from_pretrained(OUT / "plain", add_prefix_space=True)
        older.add_special_tokens({"pad_token": "[PAD]", "mask_token": "<mask>"})
        older.save_pretrained(OUT / "older")
        (OUT / "older" / "tokenizer.json").unlink()  # as its slow tokenizer saves it
        write("older", older)
    else:
        shutil.rmtree(OUT, ignore_errors=True)
        (OUT / "plain").mkdir(parents=True)
        bpe = ByteLevelBPETokenizer()
        bpe.train_from_iterator([TEXT], vocab_size=271, min_frequency=1, show_progress=False)
        bpe.save_model(str(OUT / "plain"))
        vocabulary = json.loads((OUT / "plain" / "vocab.json").read_text(encoding="utf-8"))
        vocabulary["<|endoftext|>"] = len(vocabulary)
        (OUT / "plain" / "vocab.json").write_text(
            json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8"
        )
        plain = GPT2TokenizerFast.from_pretrained(OUT / "plain")
        write("plain", plain)
        plain.save_pretrained(OUT / "shards")
        write("shards", plain, max_shard_size="8KB")
        chat = GPT2TokenizerFast.from_pretrained(OUT / "plain")
        chat.add_special_tokens(
            {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>", "pad_token": "[PAD]"}
        )
        before = [("<|im_start|>", chat.bos_token_id)]
        chat._tokenizer.post_processor = processors.TemplateProcessing(
            "<|im_start|> $A", special_tokens=before
        )
        chat.save_pretrained(OUT / "chat")
        write("chat", chat, n_rows=320)
    golden.write_text(json.dumps({"texts": TEXTS} | found), encoding="utf-8")


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    main()
