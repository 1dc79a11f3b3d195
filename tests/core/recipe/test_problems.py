from core.recipe.document import Document
from core.recipe.problems import MAX_SHOWN, problem, refuse, show


def test_one_problem_is_two_lines():
    document = Document("r.yaml")
    document.set(("a", "b"), 3, "r.yaml:4")
    error = refuse([problem("a.b", "is odd", "Make it even.")], document)
    assert str(error) == "r.yaml:4: a.b = 3: is odd\nMake it even."


def test_several_problems_are_a_line_each_and_one_hint():
    error = refuse(
        [problem("a", "is odd", "Mend a."), problem("b", "too", "Mend b.")], Document("r")
    )
    assert error.message == "r: a: is odd; Mend a.\nr: b: too; Mend b."
    assert error.hint == "Correct these 2 keys and run the command again."


def test_no_more_than_eight_are_shown():
    many = [problem(f"k{index}", "is odd", "Mend it.") for index in range(11)]
    error = refuse(many, Document("r"))
    assert error.message.count("\n") == MAX_SHOWN - 1
    assert "(3 more follow)" in error.hint


def test_long_values_are_cut():
    assert show("é" * 3) == '"ééé"'
    assert len(show("x" * 500)) == 61
