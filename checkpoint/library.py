"""A tokenizer.json of any kind, read by the library tokenizers, if it is installed."""


def library_tokenizer(content, more):
    """The content of a file, and more tokens -> what encodes a text, and the ids, {token: id}.

    ImportError if the library is missing, ValueError if it cannot read this.
    """
    import tokenizers

    try:
        library = tokenizers.Tokenizer.from_str(content)
    except BaseException as error:  # it is written in Rust, whose panics are no Exceptions
        raise ValueError(f"the library tokenizers fails: {str(error)[:200]}") from None
    library.add_special_tokens(more)
    library.no_truncation()
    library.no_padding()
    return lambda text: library.encode(text).ids, library.get_vocab()
