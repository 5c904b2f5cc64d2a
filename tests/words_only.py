"""A model that only has a tokenizer: one token a word or mark, two for the words that it is told to split."""

import re

import torch


class Words:
    """Token ids count the words in the order in which they were first met; id 1 is BOS, 0 padding."""

    pad_token_id, bos_token_id = 0, 1

    chat_template = None

    def apply_chat_template(self, turns, tokenize):
        return f"System: be kind. User: {turns[0]['content']} end"

    def __init__(self, split=()):
        self.split, self.words = set(split), ["<pad>", "<bos>"]

    def __call__(self, text, add_special_tokens):
        assert add_special_tokens is False
        return {"input_ids": [self._id(piece) for piece in self._pieces(text)]}

    def decode(self, ids):
        return "".join(self.words[i] for i in ids)

    def _pieces(self, text):
        for word in re.findall(r" ?[\w'-]+| ?[^\w\s]", text):
            cut = 1 + word.startswith(" ") if word.strip() in self.split else len(word)
            yield from (part for part in (word[:cut], word[cut:]) if part)

    def _id(self, piece):
        if piece not in self.words:
            self.words.append(piece)
        return self.words.index(piece)


class WordModel:
    """What prompt sets need of a model."""

    def __init__(self, split=()):
        self.tokenizer = Words(split)

    def to_tokens(self, text, prepend_bos):
        return torch.tensor([[1] * prepend_bos + self.tokenizer(text, add_special_tokens=False)["input_ids"]])
