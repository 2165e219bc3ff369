"""Turns text into the tokens that train.py reads: 16-bit integers, one after the other, in one file.

    apt-get download dict-gcide && dpkg-deb -x dict-gcide_*.deb build/gpt
    pip install tokenizers numpy
    python3 bench/gpt/prepare.py build/gpt/usr/share/dictd/gcide.dict.dz --output build/gpt/tokens.bin

The text is the GNU Collaborative International Dictionary of English (GPL, 40 MB), as Debian and Ubuntu package it;
any other text in files, gzipped or not, will do. A byte-level BPE is trained on it, so that the same text always
gives the same tokens.
"""

import argparse
import gzip
import hashlib
from pathlib import Path

# As large as GPT-2's with its padding to a multiple of 64; all of it is used here.
VOCAB = 50304


def read_text(path):
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return data.decode("utf-8", errors="replace")


def train_tokenizer(paragraphs, vocab):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(paragraphs, trainer)
    return tokenizer


def tokens_of(text, vocab):
    """The tokens as an array of uint16, and how many different ones the vocabulary has."""
    import numpy as np

    # The tokenizer never looks past a paragraph, whose end belongs to it.
    paragraphs = [paragraph + "\n\n" for paragraph in text.split("\n\n")]
    tokenizer = train_tokenizer(paragraphs, vocab)
    encodings = tokenizer.encode_batch(paragraphs)
    if any(tokenizer.decode(e.ids) != paragraph for e, paragraph in zip(encodings[:100], paragraphs)):
        raise SystemExit("the tokens do not spell the text")
    tokens = np.concatenate([np.array(encoding.ids, np.uint16) for encoding in encodings])
    return tokens, tokenizer.get_vocab_size()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="+")
    parser.add_argument("--vocab", type=int, default=VOCAB)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if not 256 <= arguments.vocab <= 65536:
        parser.error("--vocab: from 256, a token for each byte, to 65536, what 16 bits hold")
    text = "\n\n".join(read_text(path) for path in arguments.text)
    tokens, vocab = tokens_of(text, arguments.vocab)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_bytes(tokens.astype("<u2").tobytes())
    digest = hashlib.sha256(arguments.output.read_bytes()).hexdigest()
    print(f"{len(text)} characters, {len(tokens)} tokens of {vocab}; {arguments.output}: sha256 {digest}")


if __name__ == "__main__":
    main()
