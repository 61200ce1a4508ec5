"""A tokenizer.json of any kind, read by the library tokenizers, if it is installed."""

from functools import partial


def library_tokenizer(content, more):
    """The content of a file, and more tokens -> what encodes a text, and the ids, {token: id}.

    ImportError if the library is missing, ValueError if it cannot read this.
    """
    import tokenizers

    library = called(tokenizers.Tokenizer.from_str, content)
    library.add_special_tokens(more)
    library.no_truncation()
    library.no_padding()
    return partial(encoded, library), library.get_vocab()


def encoded(library, text):
    return called(library.encode, text).ids


def called(function, *args):
    """What a function of the library returns. ValueError if it fails: it has no error of its own.

    It is written in Rust, whose panics are no Exceptions.
    """
    try:
        return function(*args)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise ValueError(f"the library tokenizers fails: {str(error)[:200]}") from None
