// The program of a directory of tests. Its exit status: 0 when all that ran passed, 77 when some case was left out (skip.h), 1
// when one failed or when none ran, for then --source-file names no file of the directory.
#define DOCTEST_CONFIG_IMPLEMENT
#include "model/cpu/instruction_sets.h"
#include "tests/support/skip.h"
#include <csignal>
#include <cstdio>
#include <doctest/doctest.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#endif

namespace {

bool skipped = false;
int cases_run = 0;

struct CountCases : doctest::IReporter {
    explicit CountCases(const doctest::ContextOptions&) {}
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void test_case_start(const doctest::TestCaseData&) override { cases_run++; }
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("count", 1, CountCases);

// A wild pointer may end in SIGBUS, which doctest does not report: says where (addr2line -Cfie PROGRAM ADDRESS).
[[maybe_unused]] void on_bus_error(int signal) {
#if __has_include(<execinfo.h>)
    void* frames[64];
    ::backtrace_symbols_fd(frames, ::backtrace(frames, 64), 2);
#endif
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

} // namespace

void tq::test::skip(const std::string& reason) {
    std::printf("skipped: %s\n", reason.c_str());
    skipped = true;
}

int main(int argc, char** argv) {
#ifdef SIGBUS
    std::signal(SIGBUS, on_bus_error);
#endif
    try {
        tq::cpu::limit_instruction_sets();
    } catch (const std::exception& error) {
        std::printf("skipped: %s\n", error.what());
        return 77;
    }
    doctest::Context context(argc, argv);
    const int status = context.run();
    if (context.shouldExit() || status != 0) return status;
    if (cases_run == 0) {
        std::fputs("no test case ran\n", stderr);
        return 1;
    }
    return skipped ? 77 : 0;
}
