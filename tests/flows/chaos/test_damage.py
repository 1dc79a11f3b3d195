import random

from flows.chaos.damage import damage


def test_every_damage_changes_one_place_and_says_which(tmp_path):
    words = set()
    for seed in range(60):
        store = tmp_path / str(seed)
        place = store / "rollouts" / "one-0123456789abcdef"
        place.mkdir(parents=True)
        (place / "record.json").write_bytes(b"{}\n")
        (place / "rows.jsonl").write_bytes(b"0123456789")
        done = damage(store, random.Random(seed))
        left = {path.name: path.read_bytes() for path in store.glob("*/*/*")}
        assert left != {"record.json": b"{}\n", "rows.jsonl": b"0123456789"}
        words.add(done.partition(" rollouts/…/")[0])
    assert words == {"altered", "cut", "lengthened", "deleted", "deleted all beside"}


def test_an_empty_store_has_nothing_to_damage(tmp_path):
    assert damage(tmp_path, random.Random(0)) == ""
