from count_tests import closing_line

CTEST = '<testsuite><testcase name="{name}" status="{status}"/></testsuite>'
CASES = """<testsuites><testsuite>
<testcase name="A" status="run" result="completed"/>
<testcase name="B" status="run" result="completed"/>
<testcase name="C" status="run" result="skipped"><skipped message=""/></testcase>
<testcase name="D" status="notrun" result="suppressed"/>{more}
</testsuite></testsuites>"""
FAILED_CASE = '<testcase name="E" status="run" result="completed"><failure message="no"/></testcase>'


def write_run(directory, status, cases=None):
    (directory / "ctest.junit").write_text(CTEST.format(name="room_test", status=status))
    if cases:
        (directory / "room_test.xml").write_text(cases)


def test_cases_of_a_program_are_counted_one_by_one(tmp_path):
    write_run(tmp_path, "run", CASES.format(more=""))
    assert closing_line([tmp_path]) == ("2 passed, 0 failed, 1 skipped", True)


def test_a_failed_case_fails_the_run(tmp_path):
    write_run(tmp_path, "fail", CASES.format(more=FAILED_CASE))
    assert closing_line([tmp_path]) == ("2 passed, 1 failed, 1 skipped", False)


def test_a_program_that_crashed_counts_as_one_failure(tmp_path):
    write_run(tmp_path, "fail")
    assert closing_line([tmp_path]) == ("0 passed, 1 failed", False)


def test_a_program_that_fails_after_its_cases_passed_is_a_failure(tmp_path):
    write_run(tmp_path, "fail", CASES.format(more=""))
    assert closing_line([tmp_path]) == ("2 passed, 1 failed, 1 skipped", False)


def test_a_run_without_a_case_is_not_good(tmp_path):
    assert closing_line([tmp_path]) == ("0 passed, 0 failed", False)


def test_directories_are_summed(tmp_path):
    write_run(tmp_path, "run", CASES.format(more=""))
    assert closing_line([tmp_path, tmp_path]) == ("4 passed, 0 failed, 2 skipped", True)


def test_python_and_javascript_cases_count_too(tmp_path):
    (tmp_path / "pytest.xml").write_text('<testsuites><testsuite><testcase name="a"/></testsuite></testsuites>')
    (tmp_path / "node.xml").write_text(
        '<testsuites><testcase name="b"/><testcase name="c"><failure message="\x1b[2mno"/></testcase>'
        '<testsuite name="s"><testcase name="d"><skipped message="x"/></testcase></testsuite></testsuites>'
    )
    assert closing_line([tmp_path]) == ("2 passed, 1 failed, 1 skipped", False)
