"""The names that models have, and the sizes of those that were released."""

BUNDLED = ("draft", "target")


def sizes(n_layer, n_embd):
    n_head = n_embd // 64
    return dict(n_vocab=50257, n_ctx=1024, n_embd=n_embd, n_head=n_head, n_layer=n_layer)


RELEASED = {  # by OpenAI, with their hyperparameters
    "124M": sizes(12, 768),
    "355M": sizes(24, 1024),
    "774M": sizes(36, 1280),
    "1558M": sizes(48, 1600),
}
MODELS = {  # {name: where it is at Hugging Face}
    "distilgpt2": "distilbert/distilgpt2",
    "gpt2": "openai-community/gpt2",
    "gpt2-medium": "openai-community/gpt2-medium",
    "gpt2-large": "openai-community/gpt2-large",
    "gpt2-xl": "openai-community/gpt2-xl",
}
KNOWN = RELEASED | {
    "distilgpt2": sizes(6, 768),
    "gpt2": RELEASED["124M"],
    "gpt2-medium": RELEASED["355M"],
    "gpt2-large": RELEASED["774M"],
    "gpt2-xl": RELEASED["1558M"],
}
NAMES = (*BUNDLED, *RELEASED, *MODELS)
CHOICES = f"one of {', '.join(NAMES)}, or a folder"

DRAFTS = {  # {a target: its usual draft}
    "target": "draft",
    "355M": "124M",
    "774M": "124M",
    "1558M": "124M",
    "gpt2": "distilgpt2",
    "gpt2-medium": "gpt2",
    "gpt2-large": "gpt2",
    "gpt2-xl": "gpt2",
}
TARGETS = {  # {a draft: its usual target}
    "draft": "target",
    "124M": "1558M",
    "355M": "1558M",
    "774M": "1558M",
    "distilgpt2": "gpt2-xl",
    "gpt2": "gpt2-xl",
    "gpt2-medium": "gpt2-xl",
    "gpt2-large": "gpt2-xl",
}
