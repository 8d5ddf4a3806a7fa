// bench --spec: what drafts gain, plain and drafting decoding in turn, on texts that repeat and that do not. An untrained or
// small model does not say what a text says, so GivenText makes it: all logits but that of the given token become -inf, and what
// the model would have said is kept. So drafts are right as often as the text allows, and the work is that of real decoding.
// Texts (spec_texts): a copy of the prompt with edits, in which prompt lookup finds most tokens; the prompt's tokens shuffled, in
// which it finds hardly any; and the model's own text. Plain and drafting are timed in turn within each repetition, and medians
// are compared. What the model says must be the same with and without drafts, or nothing is reported.
#include "tools/tq-run/bench/speculation.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/statistics.h"
#include "model/engine/session.h"
#include "model/engine/speculation/speculation.h"
#include "model/files/calibration.h"
#include "model/files/formats/json.h"
#include "tools/tq-run/bench/random_ids.h"
#include "tools/tq-run/bench/run.h"
#include "tools/tq-run/cli/progress.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/setup.h"
#include "tools/tq-run/engine/shared_model.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace tq::bench {
namespace {

constexpr uint64_t max_text_bytes = 64u << 20;
constexpr uint32_t tokens_per_edit = 24;

using Ids = std::vector<uint32_t>;

// Has a model say a given text, and notes what it would have said at each place.
// `sampled` grows by one with each call, so its size is the place in the text. A draft is verified by the same constraint, which
// is why drafted tokens are right exactly where the text has them.
class GivenText final : public TokenConstraint {
  public:
    explicit GivenText(const Ids& text) : text_(text) {}
    void apply(std::span<float> logits) override {
        sampled.push_back(argmax(logits));
        const uint32_t given = text_[sampled.size() - 1];
        const float its = logits[given];
        std::ranges::fill(logits, -std::numeric_limits<float>::infinity());
        logits[given] = its;
    }
    void accept(uint32_t) override {}

    Ids sampled;

  private:
    const Ids& text_;
};

struct Decoded {
    Ids sampled; // the most probable token at each place
    double seconds = 0;
    uint32_t drafted = 0, accepted = 0;
};

struct Gain {
    std::string text;
    uint32_t prompt, tokens;
    double plain = 0, drafting = 0; // tokens per second
    uint32_t drafted = 0, accepted = 0;
};

Decoded decode(Session& session, const SpecText& text, uint32_t tokens, Speculation* speculation) {
    SamplerOptions greedy;
    greedy.temperature = 0;
    Sampler sampler(greedy);
    GivenText given(text.answer);
    if (!text.answer.empty()) sampler.constrain(&given);
    GenerateOptions options{.max_tokens = tokens, .interrupted = interrupted};
    options.speculation = speculation;
    const Generated result = session.generate(text.prompt, sampler, options);
    if (result.stop == Stop::interrupted) throw LoadStopped();
    return {text.answer.empty() ? result.ids : given.sampled, double(result.timings.decode_ns) * 1e-9,
            result.timings.drafted_tokens, result.timings.accepted_tokens};
}

// Two forwards share its weights: one as a user without --spec has it, and one that has what drafts need (the model's head,
// pending tokens of recurrent layers).
// One model on one device with one cache.
class SpecRun {
  public:
    SpecRun(const Arguments& arguments, Subject& subject, const SharedModel& shared, const KvOptions& kv, Console& console)
        : arguments_(arguments), setup_(subject.setup), console_(console), plain_(make(shared, kv, false)),
          drafting_(make(shared, kv, true)), plain_session_(*plain_), drafting_session_(*drafting_),
          model_drafts_(arguments.speculation.drafts_by_model() ? speculator() : nullptr) {}

    Gain measure(const SpecText& text, uint32_t tokens);
    std::string drafts() const { return (model_drafts_ ? *model_drafts_ : *speculator()).description; }

  private:
    std::unique_ptr<Forward> make(const SharedModel& shared, const KvOptions& kv, bool speculative) const {
        setup_.options.speculative = speculative;
        setup_.model.config.mtp = speculative && arguments_.speculation.by_head();
        setup_.options.pending = speculative && setup_.model.config.has_states() ? arguments_.speculation.options().draft_max : 0;
        return shared.forward(kv);
    }
    std::unique_ptr<Speculator> speculator() const {
        auto drafts = start_speculation(arguments_.speculation, {setup_.model, setup_.device.get(), *drafting_},
                                        arguments_.thread_list()[0], console_);
        if (!drafts) fail("{}: there is no speculation to be measured", setup_.model.name);
        if (const std::string& named = arguments_.speculation.device; drafts->model && !named.empty())
            require_chosen(named, find_devices(named), drafts->device ? 1 : 0);
        return drafts;
    }
    Decoded decode_drafting(const SpecText& text, uint32_t tokens);
    static double rate(const Decoded& decoded, uint32_t tokens) { return (tokens - 1) / decoded.seconds; } // after the first

    const Arguments& arguments_;
    Setup& setup_;
    Console& console_;
    const std::unique_ptr<Forward> plain_, drafting_;
    Session plain_session_, drafting_session_;
    const std::unique_ptr<Speculator> model_drafts_; // other drafts begin anew with each answer
};

Decoded SpecRun::decode_drafting(const SpecText& text, uint32_t tokens) {
    const auto fresh = model_drafts_ ? nullptr : speculator();
    return decode(drafting_session_, text, tokens, (fresh ? fresh : model_drafts_)->speculation.get());
}

// `expected` comes from the drafting session without drafts: the same forward with the same pending tokens, so that only drafting
// differs. The plain session is timed on a forward that keeps nothing for drafts, as a user without --spec would have it.
Gain SpecRun::measure(const SpecText& text, uint32_t tokens) {
    console_.status(fmt::format("{}: checking", text.name));
    const Decoded expected = decode(drafting_session_, text, tokens, nullptr);
    const auto check = [&](const Decoded& got) {
        const auto same = std::ranges::mismatch(got.sampled, expected.sampled).in1 - got.sampled.begin();
        if (size_t(same) < expected.sampled.size())
            fail("with drafts token {} of the {} is another than without, so nothing is timed: this is a bug of tq-run or of the "
                 "device's driver; tq-run conformance checks the device",
                 same, text.name);
    };
    check(decode_drafting(text, tokens));
    decode(plain_session_, text, tokens, nullptr); // warms up
    Gain row{text.name, uint32_t(text.prompt.size()), tokens};
    const auto say = [&](const std::string& what) { console_.status(fmt::format("{}: {}", text.name, what)); };
    const auto rates = repeat(arguments_, say, [&] {
        const double plain = rate(decode(plain_session_, text, tokens, nullptr), tokens);
        const Decoded got = decode_drafting(text, tokens);
        check(got);
        row.drafted += got.drafted;
        row.accepted += got.accepted;
        return std::optional(std::pair(plain, rate(got, tokens)));
    });
    const auto median_of = [&](double std::pair<double, double>::*part) {
        std::vector<double> all;
        for (const auto& both : rates) all.push_back(both.*part);
        return median(std::move(all));
    };
    row.plain = median_of(&std::pair<double, double>::first);
    row.drafting = median_of(&std::pair<double, double>::second);
    console_.clear_status();
    return row;
}

Layout gain_layout() {
    const auto number = [](const char* name, const char* key, const char* unit, int digits) {
        return Column{name, 0,
                      [=](const Row& row) { return fmt::format("{:.{}f}{}", row.fields.at(key).get<double>(), digits, unit); }};
    };
    const auto accepted = [](const Row& row) {
        return row.fields.at("drafted") == 0 ? "" : fmt::format("{:.0f} %", 100 * row.fields.at("acceptance").get<double>());
    };
    const std::vector<Column> columns{{"text", 0, [](const Row& row) { return row.fields.at("text").get<std::string>(); }},
                                      number("tokens", "tokens", "", 0),
                                      number("plain t/s", "plain_ts", "", 2),
                                      number("with drafts t/s", "drafting_ts", "", 2),
                                      number("gain", "gain", "x", 2),
                                      number("drafted", "drafted", "", 0),
                                      {"accepted", 0, accepted}};
    const auto heading = [](const Row& row) {
        const auto text = [&](const char* key) { return row.fields.at(key).get<std::string>(); };
        return fmt::format("{}, {}, cache {}, drafts of {}, after {} tokens", text("model"), text("device"), text("cache"),
                           text("drafts"), row.fields.at("prompt_tokens").get<uint32_t>());
    };
    return {.columns = [columns](const Row&) { return columns; }, .first_number = 1, .heading = heading, .list = "speculation"};
}

Ids prompt_ids(const Arguments& arguments, const Model& model, uint32_t count) {
    if (arguments.spec_text.empty()) return text_like_ids(count, model.config.vocab_size);
    Ids ids = model.tokenizer.encode(read_text_file(utf8_path(arguments.spec_text), max_text_bytes), false);
    if (ids.size() < 2 * tokens_per_edit)
        fail("{} has {} tokens: too few to copy with edits; give a text of at least {}", arguments.spec_text, ids.size(),
             2 * tokens_per_edit);
    ids.resize(std::min<size_t>(ids.size(), count));
    return ids;
}

// The first of a list's tests.
uint32_t first_number(const std::vector<Test>& tests, uint32_t Test::*member, uint32_t otherwise) {
    for (const Test& test : tests)
        if (test.*member > 0) return test.*member;
    return otherwise;
}

bool run_on(const Arguments& arguments, Subject& subject, Console& console, Reporters& reporters) {
    Setup& setup = subject.setup;
    const std::vector<Test> tests = arguments.tests();
    const uint32_t tokens = first_number(tests, &Test::generated, 128);
    if (tokens < 2) throw UsageError("--spec times the tokens after the first: -n must be at least 2");
    const Ids ids = prompt_ids(arguments, setup.model, std::max(first_number(tests, &Test::prompt, 512), 2 * tokens_per_edit));
    setup.options.context_size = uint32_t(ids.size()) + tokens + max_draft_tokens;
    setup.options.threads = arguments.thread_list()[0];
    const SharedModel shared(setup, console);
    return run_caches(arguments, setup, console, [&](const KvOptions& kv) {
        SpecRun run(arguments, subject, shared, kv, console);
        for (const SpecText& text : spec_texts(ids, tokens)) {
            const Gain gain = run.measure(text, tokens);
            reporters.add({{{"text", gain.text},
                            {"prompt_tokens", gain.prompt},
                            {"tokens", gain.tokens},
                            {"plain_ts", gain.plain},
                            {"drafting_ts", gain.drafting},
                            {"gain", gain.drafting / gain.plain},
                            {"drafted", gain.drafted},
                            {"accepted", gain.accepted},
                            {"acceptance", gain.drafted == 0 ? 0 : double(gain.accepted) / gain.drafted},
                            {"model", subject.label},
                            {"device", setup.device_name},
                            {"cache", describe(kv)},
                            {"drafts", run.drafts()}}});
        }
    });
}

} // namespace

std::vector<uint32_t> text_like_ids(uint32_t count, uint32_t vocab_size) {
    std::mt19937 random(count);
    Ids ids(count);
    for (uint32_t& id : ids) { // rank r has a probability near 1 / r
        const double u = double(random() >> 8) * 0x1p-24;
        id = uint32_t(std::min(std::exp(u * std::log(double(vocab_size))), double(vocab_size))) - 1;
    }
    return ids;
}

// On average one token in tokens_per_edit is edited: left out, replaced, or preceded by another, with a third of a chance each.
// The generators are seeded by constants, so that each run has the same texts.
std::vector<SpecText> spec_texts(const std::vector<uint32_t>& ids, uint32_t tokens) {
    std::mt19937 random(1);
    Ids edited, shuffled = ids;
    for (size_t i = 0; edited.size() < tokens; i++) {
        const uint32_t edit = uint32_t(random() % tokens_per_edit), other = ids[random() % ids.size()];
        const bool leaves_out = edit == 0 && random() % 3 == 0, inserts = edit == 0 && !leaves_out && random() % 2 == 0;
        if (leaves_out) continue;
        if (edit == 0) edited.push_back(other);
        if (edit != 0 || inserts) edited.push_back(ids[i % ids.size()]);
    }
    edited.resize(tokens);
    Ids disordered;
    while (disordered.size() < tokens) {
        std::ranges::shuffle(shuffled, random);
        disordered.insert(disordered.end(), shuffled.begin(), shuffled.end());
    }
    disordered.resize(tokens);
    return {{"edited copy", ids, edited}, {"shuffled", ids, disordered}, {"own text", ids, {}}};
}

int run_speculation(const Arguments& arguments, Console& console) {
    Reporters reporters(arguments, gain_layout());
    return run_subjects(
        arguments, console, [&](Subject& subject) { return run_on(arguments, subject, console, reporters); },
        [&] { reporters.finish(); });
}

} // namespace tq::bench
