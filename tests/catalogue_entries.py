"""Small entries of a catalogue that the validator accepts, for tests to build on."""

import copy

CLAIM = {
    "id": "C1",
    "kind": "decodable",
    "statement": "It can be read.",
    "statistic": "accuracy on held-out words",
    "unit": "template",
    "bounds": [0, 1],
    "test": {"at_least": 0.7},
    "smallest_effect": "below this nobody would call it readable",
    "controls": {"shuffled_labels": "the same fit on shuffled labels"},
    "paper": {"value": 0.9, "text": "nearly all", "model": "gpt2", "place": "Table 1", "scope": "test words"},
    "threshold_from": "theory",
    "seen_before": False,
    "tolerance": 0.02,
}
PLANNED = {
    "title": "A: B",
    "authors": ["Özgür Şimşek"],
    "venue": "ICLR 2024",
    "arxiv": "2310.00001",
    "code": "owner/repo",
    "theme": "circuits",
    "tier": "A",
    "status": "planned",
}
STANDS = PLANNED | {
    "status": "stands",
    "model": ["gpt2"],
    "not_claimed": ["That it is used."],
    "presets": {"quick": {}, "evidence": {"n": 12}, "paper": {"lr": 1e-4}},
    "teaching": {
        "idea": "One idea.",
        "goals": ["a", "b", "c"],
        "prerequisites": [],
        "minutes": {"read": 20, "run": 0.5, "exercise": 30},
        "difficulty": "introductory",
        "tags": ["probes"],
        "misconceptions": [{"name": "probed is used", "cell": "c1-text-1"}],
    },
    "claims": [CLAIM, copy.deepcopy(CLAIM) | {"id": "C2", "test": {"between": [0.2, 0.3]}}],
}
