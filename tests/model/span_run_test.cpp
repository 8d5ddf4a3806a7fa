// The division of spans among passes, and of what is wanted among runs of the head.
#include "base/error.h"
#include "model/span_run.h"
#include "tests/support/toy_vectors.h"
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>

using namespace tq;

namespace {

// Writes down what it is asked for. The only logit, or state, of a row is its position; at `nan_at` it is none.
class WritingStage final : public Stage {
  public:
    WritingStage(uint32_t batch, uint32_t separate, bool deterministic) {
        const uint32_t slice = separate + separate / 2;
        limits_ = {.kernels = deterministic || batch <= slice ? BlockKernels{} : BlockKernels{batch, slice + 1},
                   .deterministic = deterministic,
                   .batch_size = batch,
                   .short_block = 0,
                   .max_separate_rows = separate,
                   .min_separate_rows = 1,
                   .separate_room = separate,
                   .separate_slice = slice,
                   .max_block_spans = 8,
                   .max_head_rows = 16,
                   .max_hidden_rows = 2};
    }

    uint32_t next_rows(uint32_t, uint32_t max) const override { return std::min(max, rows_at_once); }
    bool run_block(HalfRange, const PassRows& rows, uint32_t whole, std::span<float> h, const KeepGoing& keep_going) override {
        REQUIRE(h.empty());
        if (!keep_going()) return false;
        write(rows, whole == rows.count() ? "b" : "b/" + std::to_string(whole));
        return true;
    }
    bool run_separate(HalfRange, const PassRows& rows, std::span<float> h, std::span<const float>* logits,
                      const KeepGoing& keep_going) override {
        REQUIRE(h.empty());
        if (!keep_going()) return false;
        write(rows, logits != nullptr ? "S" : "s");
        std::vector<uint32_t> all(rows.count());
        for (uint32_t i = 0; i < all.size(); i++) all[i] = i;
        if (logits != nullptr) *logits = results(all);
        return true;
    }
    std::span<const float> run_head(std::span<const uint32_t> rows, std::span<const float> h, bool separate) override {
        REQUIRE(h.empty());
        heads += separate ? "s" : "b";
        for (const uint32_t row : rows) heads += " " + std::to_string(row);
        heads += ";";
        return results(rows);
    }
    std::span<const float> run_last_norm(std::span<const uint32_t> rows, std::span<const float>) override {
        heads += "h";
        for (const uint32_t row : rows) heads += " " + std::to_string(row);
        heads += ";";
        return results(rows);
    }
    PassLimits limits() const override { return limits_; }
    std::string computation() const override { return ""; }
    CacheVectors& vectors() override { return vectors_; }

    std::string passes, heads;
    uint32_t rows_at_once = UINT32_MAX, nan_at = UINT32_MAX;

  private:
    void write(const PassRows& rows, const std::string& kind) {
        passes += kind;
        positions_.clear();
        for (uint32_t i = 0, begin = 0; i < rows.count(); i++) {
            const PassRow& row = rows.rows[i];
            positions_.push_back(row.position == nan_at ? NAN : float(row.position));
            if (i + 1 < rows.count() && rows.rows[i + 1].slot == row.slot) continue;
            passes += " " + std::to_string(row.slot) + ":" + std::to_string(rows.rows[begin].position) + "+" +
                      std::to_string(i + 1 - begin);
            begin = i + 1;
        }
        passes += ";";
    }
    std::span<const float> results(std::span<const uint32_t> rows) {
        results_.clear();
        for (const uint32_t row : rows) results_.push_back(positions_[row]);
        return results_;
    }

    PassLimits limits_;
    std::vector<float> positions_, results_;
    ToyVectors vectors_;
};

struct Runs {
    WritingStage stage;
    Cache cache;
    const std::vector<uint32_t> ids = std::vector<uint32_t>(1000);
    std::string delivered; // span:index=result of each, in order

    Runs(uint32_t batch, uint32_t separate, bool deterministic = false)
        : stage(batch, separate, deterministic), cache({.slots = 8, .pages = 32, .context_size = 1024}) {
        cache.store_in(stage.vectors());
    }

    bool run(std::vector<uint32_t> counts, std::vector<Span::Logits> wanted = {}, Progress progress = {}) {
        std::vector<Span> spans;
        for (const uint32_t count : counts) {
            const size_t i = spans.size();
            spans.push_back({uint32_t(i), std::span(ids).first(count), i < wanted.size() ? wanted[i] : Span::Logits::none});
        }
        const auto each = [&](size_t span, uint32_t i, std::span<const float> values) {
            REQUIRE(values.size() == 1);
            delivered += std::to_string(span) + ":" + std::to_string(i) + "=" + std::to_string(int(values[0])) + " ";
        };
        const PassLimits limits = stage.limits();
        return run_spans(stage, limits, {0, 2}, cache, spans, each, progress);
    }
};

std::string passes(const std::vector<uint32_t>& counts, uint32_t batch, uint32_t separate, bool deterministic = false) {
    Runs runs(batch, separate, deterministic);
    CHECK(runs.run(counts));
    for (uint32_t i = 0; i < counts.size(); i++) CHECK(runs.cache.position(i) == counts[i]);
    return runs.stage.passes;
}

} // namespace

TEST_CASE("spans are divided into passes of separate rows and of blocks") {
    CHECK(passes({1, 1, 1}, 128, 8) == "s 0:0+1 1:0+1 2:0+1;");
    CHECK(passes({5, 5, 4}, 128, 8) == "s 0:0+5 1:0+3;s 1:3+2 2:0+4;");
    CHECK(passes({130, 1, 200}, 128, 8) == "s 1:0+1;b 0:0+117;b 0:117+13;b 2:0+128;b 2:128+72;");
    CHECK(passes({20, 12, 98, 16, 13}, 128, 8) == "s 1:0+8;s 1:8+4;b 0:0+20 2:0+98;b 3:0+16 4:0+13;");
    CHECK(passes({30, 12, 98, 24, 25}, 128, 16) == "s 1:0+12 3:0+4;s 3:4+16;s 3:20+4;b 0:0+30 2:0+98;b 4:0+25;");
    CHECK(passes({30, 60}, 32, 16) == "b 0:0+30;b 1:0+32;b 1:32+28;");
    CHECK(passes({20, 12}, 128, 8, true) == "s 0:0+8;s 0:8+8;s 0:16+4 1:0+4;s 1:4+8;");
    CHECK(passes({20, 12}, 128, 16, true) == "s 0:0+16;s 0:16+4 1:0+12;");
    CHECK(passes({9, 3}, 4, 16) == "s 0:0+9 1:0+3;");
}

TEST_CASE("a block runs in as many passes as the device needs, with the kernels of the whole") {
    Runs runs(128, 8);
    runs.stage.rows_at_once = 50;
    CHECK(runs.run({128}, {Span::Logits::last}));
    CHECK(runs.stage.passes == "b/128 0:0+50;b/128 0:50+50;b/128 0:100+28;");
    CHECK(runs.stage.heads == "s 27;");
    CHECK(runs.delivered == "0:127=127 ");
}

TEST_CASE("what is wanted of a pass is computed by the head that it belongs to, a few rows at a time") {
    Runs runs(64, 4);
    using enum Span::Logits;
    CHECK(runs.run({20, 2, 3, 1, 2}, {all, last, all, hidden, none}));
    CHECK(runs.stage.passes == "s 1:0+2 2:0+2;s 2:2+1 3:0+1 4:0+2;b 0:0+20;");
    CHECK(runs.stage.heads == "s 1 2 3;s 0;h 1;b 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15;b 16 17 18 19;");
    CHECK(runs.delivered.starts_with("1:1=1 2:0=0 2:1=1 2:2=2 3:0=0 0:0=0 "));
    Runs tokens(64, 4);
    CHECK(tokens.run({1, 1}, {last, last}));
    CHECK(tokens.stage.passes == "S 0:0+1 1:0+1;"); // with the head in the same submission
    CHECK(tokens.stage.heads.empty());
}

TEST_CASE("a value that is not finite takes all slots back to where the run began") {
    Runs runs(64, 4);
    CHECK(runs.run({30, 3}));
    runs.stage.nan_at = 31;
    CHECK_THROWS_AS(runs.run({2, 2}, {Span::Logits::all, Span::Logits::last}), NonFinite);
    CHECK(runs.cache.position(0) == 30);
    CHECK(runs.cache.position(1) == 3);
}

TEST_CASE("a run that is stopped in a block has what was run before it") {
    Runs runs(64, 4);
    uint32_t asked = 0;
    CHECK(!runs.run({150}, {}, [&](uint32_t done, uint32_t total) {
        CHECK(total == 150);
        asked++;
        return done < 64;
    }));
    CHECK(runs.cache.position(0) == 64);
    CHECK(asked > 1);
    CHECK(!runs.run({5}, {}, [](uint32_t, uint32_t) { return false; })); // the same for separate rows
    CHECK(runs.cache.position(0) == 64);
}
