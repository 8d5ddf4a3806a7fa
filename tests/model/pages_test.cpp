// The three forward passes have the same steps: model/{reference,cpu,gpu}/forward.cpp call the same functions with the same
// arguments in the same order.
#include "tests/support/text.h"
#include <doctest/doctest.h>
#include <regex>

namespace {

// The statements of `function` in a file, without comments, and with single spaces.
std::string page(const std::string& backend, const std::string& function, const std::string& planted = {}) {
    std::string text = tq::test::slurp(std::string(TQ_SOURCE_DIR) + "/model/" + backend + "/forward.cpp");
    if (!planted.empty()) {
        const size_t line = text.find(planted);
        REQUIRE(line != std::string::npos);
        text.erase(line, text.find('\n', line) - line);
    }
    const std::smatch found = [&] {
        std::smatch match;
        REQUIRE(std::regex_search(text, match, std::regex("\nvoid " + function + "\\([^)]*\\) \\{([^]*?)\n?\\}\n")));
        return match;
    }();
    const std::string body = std::regex_replace(found[1].str(), std::regex("//[^\n]*"), "");
    return std::regex_replace(body, std::regex("\\s+"), " ");
}

} // namespace

TEST_CASE("the reference, the CPU and devices run the same page") {
    for (const std::string function : {"attention_half", "recurrent_half", "first_half", "shared_expert", "feed_forward_half",
                                       "layers", "head", "last_norm", "mtp_keys", "draft"}) {
        const std::string reference = page("reference", function);
        CHECK(tq::test::contains(reference, "(pass, "));
        CHECK(page("cpu", function) == reference);
        CHECK(page("gpu", function) == reference);
    }
}

TEST_CASE("a step that is missing from one page shows") {
    CHECK(page("cpu", "attention_half", "q_norm_rope(pass, l, x.q, x.page_scores);") != page("reference", "attention_half"));
    CHECK(page("gpu", "head", "matmul(pass, {{x.logits, net.output}}, x.a);") != page("reference", "head"));
    CHECK(page("gpu", "last_norm") != page("reference", "head"));
}
