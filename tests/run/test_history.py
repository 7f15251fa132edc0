"""The history of a run: events are recorded and read again."""

from t2t_keras.run.history import read_history, record_event, trainings


def test_events_are_read_in_their_order(tmp_path):
    assert read_history(tmp_path) == []
    record_event(tmp_path, "training", last_step=4, devices=["é"])
    record_event(tmp_path, "evaluation", of=tmp_path)
    record_event(tmp_path, "training", last_step=6)
    history = read_history(tmp_path)
    kinds = [event["kind"] for event in history]
    assert kinds == ["training", "evaluation", "training"]
    assert history[0]["devices"] == ["é"]
    assert history[1]["of"] == type(tmp_path).__name__
    assert [event["last_step"] for event in trainings(history)] == [4, 6]


def test_a_failed_record_is_reported(tmp_path, capfd):
    (tmp_path / "history.jsonl").mkdir()
    record_event(tmp_path, "evaluation")
    warning = "Is a directory; this evaluation is not recorded there"
    assert f"warning: {tmp_path}/history.jsonl: {warning}" in capfd.readouterr().err
