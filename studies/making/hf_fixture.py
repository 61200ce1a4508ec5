"""Write tests/fixtures/hf/: tiny random GPT-2s by transformers, its ids, and logits in float64.

    pip install -r studies/making/requirements.txt && python -m studies.making.hf_fixture

plain/ has vocab.json and merges.txt as the library tokenizers saves them. chat/ is as
transformers 5 saves a model that was prepared for chats: added tokens, one of which ends
a text, one that comes before each text, and rows filled up to a multiple of 64. shards/
is in three files.
"""

import json
from pathlib import Path

from ending import report
from terminal import Parser

OUT = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "hf"
GOLDEN = OUT / "golden.json"
TEXT = (
    "The cat sat on the mat. The hat that the cat has is on the cat, not on the mat; "
    "isn't that — naïve?\n"
)
TEXTS = [
    TEXT,
    "",
    " The",
    "a [PAD]b<|im_end|> <|endoftext|>c",
    "x <mask> y",
    "The cat<|im_end|>\n<|im_start|> sat",
]
SIZES = dict(n_positions=48, n_embd=8, n_head=2, n_layer=2)
CHAT = {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>", "pad_token": "[PAD]"}


def write(name, tokenizer, n_rows=None, **options):
    """Save a random model, and put the ids and the logits of transformers in golden.json."""
    import torch
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    n_vocab, eos = len(tokenizer), tokenizer.eos_token_id
    ends = dict(bos_token_id=tokenizer.bos_token_id, eos_token_id=eos)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=n_vocab, **ends, **SIZES)).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():  # biases too
            is_gain = ".ln_" in key and key.endswith("weight")
            parameter.normal_(mean=float(is_gain), std=0.4)
    if n_rows:
        model.resize_token_embeddings(n_rows, mean_resizing=False)
    model.save_pretrained(OUT / name, **options)
    (OUT / name / "generation_config.json").unlink()
    tokenizer = AutoTokenizer.from_pretrained(OUT / name)
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    with torch.no_grad():
        rows = model.double()(torch.tensor([ids[0][: SIZES["n_positions"]]])).logits[0]
    logits = rows[-1, :n_vocab].tolist()
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"texts": TEXTS}
    golden[name] = {"ids": ids, "n_vocab": n_vocab, "eos": eos, "logits": logits}
    GOLDEN.write_text(json.dumps(golden))


def main():
    Parser(description=__doc__).parse_args()
    from tokenizers import ByteLevelBPETokenizer, processors
    from transformers import GPT2TokenizerFast

    folder = OUT / "plain"
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator([TEXT], vocab_size=271, min_frequency=1, show_progress=False)
    bpe.save_model(str(folder))
    path = folder / "vocab.json"
    vocab = json.loads(path.read_text(encoding="utf-8")) | {"<|endoftext|>": 271}
    path.write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    plain = GPT2TokenizerFast.from_pretrained(folder)
    write("plain", plain)
    plain.save_pretrained(OUT / "shards")
    write("shards", plain, max_shard_size="8KB")
    chat = GPT2TokenizerFast.from_pretrained(folder)
    chat.add_special_tokens(CHAT)
    start = [("<|im_start|>", chat.bos_token_id)]
    template = processors.TemplateProcessing("<|im_start|> $A", special_tokens=start)
    chat._tokenizer.post_processor = template
    chat.save_pretrained(OUT / "chat")
    write("chat", chat, n_rows=320)


if __name__ == "__main__":
    report(main, "python -m studies.making.hf_fixture")
