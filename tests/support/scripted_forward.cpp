#include "tests/support/scripted_forward.h"
#include "base/checksum.h"
#include "base/ensure.h"
#include "base/splitmix64.h"
#include "tests/support/qwen3_vocabulary.h"
#include "tests/support/toy_vectors.h"
#include <algorithm>
#include <cstring>
#include <thread>

namespace tq::test {

namespace {

constexpr float certain = 100; // the logit of the next id; all others have 0

using Ids = std::vector<uint32_t>;

} // namespace

Model make_scripted_model(ChatVariant variant) {
    ModelFile file = read_qwen3_vocabulary();
    Tokenizer tokenizer(file);
    const Config config{.vocab_size = tokenizer.size(),
                        .hidden_size = 64,
                        .intermediate_size = 64,
                        .num_hidden_layers = 1,
                        .num_attention_heads = 1,
                        .num_key_value_heads = 1,
                        .head_dim = 64,
                        .max_position_embeddings = 262144,
                        .rope_theta = 1e6f,
                        .rms_norm_eps = 1e-6f};
    return {std::move(file), config, {}, std::move(tokenizer), variant, "scripted"};
}

class ScriptedForward::IdCache final : public Cache, private ToyVectors {
  public:
    explicit IdCache(const Shape& shape) : Cache(shape), ids_(size_t(shape.pages) * page_tokens) { store_in(*this); }

    uint32_t& id(uint32_t slot, uint32_t position) {
        return ids_[size_t(table(slot)[position / page_tokens]) * page_tokens + position % page_tokens];
    }
    Ids ids(uint32_t slot) {
        Ids all(position(slot));
        for (uint32_t at = 0; at < all.size(); at++) all[at] = id(slot, at);
        return all;
    }

    // The id is the one word of a key; values have none.
    PageLayout page_layout() const override { return {1, {{1, 0}, {0, 0}}}; }
    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const override {
        ENSURE(tokens <= page_tokens && bytes.size() == page_layout().bytes(tokens), "{} bytes of {} tokens", bytes.size(),
               tokens);
        std::memcpy(bytes.data(), &ids_[size_t(page) * page_tokens], bytes.size());
    }
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) override {
        ENSURE(tokens <= page_tokens && bytes.size() == page_layout().bytes(tokens), "{} bytes of {} tokens", bytes.size(),
               tokens);
        std::memcpy(&ids_[size_t(page) * page_tokens], bytes.data(), bytes.size());
    }

  private:
    void copy_page(uint32_t from, uint32_t to, uint32_t tokens) override {
        std::copy_n(&ids_[size_t(from) * page_tokens], tokens, &ids_[size_t(to) * page_tokens]);
    }
    Ids ids_; // [pages][page_tokens]
};

ScriptedForward::ScriptedForward(const Model& model, Script script, ScriptedOptions options)
    : model_(model), script_(std::move(script)), options_(std::move(options)), answers_(options_.slots),
      generation_prompt_(model.tokenizer.encode("<|im_start|>assistant\n")),
      no_thinking_(model.tokenizer.encode("<think>\n\n</think>\n\n")), end_(model.tokenizer.special("<|im_end|>").value()),
      logits_(model.config.vocab_size), hidden_(model.config.hidden_size) {
    ForwardOptions sizes;
    sizes.context_size = options_.context_size, sizes.slots = options_.slots, sizes.cache_tokens = options_.cache_tokens;
    cache_ = std::make_unique<IdCache>(Cache::Shape{options_.slots, sizes.pages(), options_.context_size});
}

ScriptedForward::~ScriptedForward() = default;

Cache& ScriptedForward::cache() { return *cache_; }

// Returns how many of the ids are the prompt: up to the last generation prompt.
size_t ScriptedForward::prompt_length(std::span<const uint32_t> ids) const {
    const auto found = std::find_end(ids.begin(), ids.end(), generation_prompt_.begin(), generation_prompt_.end());
    if (found == ids.end()) return 0;
    const size_t length = size_t(found - ids.begin()) + generation_prompt_.size();
    const auto rest = ids.subspan(length);
    const bool no_thinking =
        rest.size() >= no_thinking_.size() && std::ranges::equal(rest.first(no_thinking_.size()), no_thinking_);
    return length + (no_thinking ? no_thinking_.size() : 0);
}

const Ids& ScriptedForward::answer(uint32_t slot, std::span<const uint32_t> prompt) {
    Answer& answer = answers_[slot];
    if (answer.ids.empty() || !std::ranges::equal(answer.prompt, prompt)) {
        answer = {Ids(prompt.begin(), prompt.end()), script_(prompt)};
        answer.ids.push_back(end_);
    }
    return answer.ids;
}

// Follows what was said along the answer, and returns how much of it is done. What was said differs if a grammar or a limit
// of the thinking forced other tokens: a special token that comes later in the answer leads there, any other is passed over.
size_t ScriptedForward::follow(std::span<const uint32_t> answer, std::span<const uint32_t> said) const {
    const Tokenizer& tokenizer = model_.tokenizer;
    size_t at = 0;
    for (const uint32_t id : said) {
        if (at < answer.size() && answer[at] == id) {
            at++;
        } else if (tokenizer.special(tokenizer.bytes(id)) == id) {
            const auto found = std::find(answer.begin() + ptrdiff_t(at), answer.end(), id);
            if (found != answer.end()) at = size_t(found - answer.begin()) + 1;
        }
    }
    return at;
}

std::span<const float> ScriptedForward::logits(uint32_t slot, std::span<const uint32_t> ids) {
    const size_t length = prompt_length(ids);
    const Ids& all = answer(slot, ids.first(length));
    std::ranges::fill(logits_, 0.0f);
    logits_[all[std::min(follow(all, ids.subspan(length)), all.size() - 1)]] = certain;
    return logits_;
}

std::span<const float> ScriptedForward::hidden(std::span<const uint32_t> ids) {
    uint64_t seed = checksum(std::as_bytes(ids));
    for (float& value : hidden_) value = float(int32_t(splitmix64(seed) >> 32)) / float(INT32_MAX);
    return hidden_;
}

// Runs `count` ids of a span, for which there is room, from index `from` on.
void ScriptedForward::run_pass(const Span& span, size_t number, uint32_t from, uint32_t count, const SpanLogits& each) {
    for (uint32_t i = from; i < from + count; i++) {
        ENSURE(span.ids[i] < model_.config.vocab_size, "id {}", span.ids[i]);
        cache_->id(span.slot, cache_->position(span.slot)) = span.ids[i];
        cache_->advance(span.slot, 1);
        const bool is_last = i + 1 == span.ids.size();
        if (span.logits == Span::Logits::none || (span.logits != Span::Logits::all && !is_last)) continue;
        const Ids ids = cache_->ids(span.slot);
        each(number, i, span.logits == Span::Logits::hidden ? hidden(ids) : logits(span.slot, ids));
    }
}

bool ScriptedForward::run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) {
    std::vector<Cache::Need> needs;
    uint32_t longest = 0, total = 0, done = 0;
    for (const Span& span : spans) {
        ENSURE(!span.ids.empty() && span.slot < options_.slots, "{} ids in slot {}", span.ids.size(), span.slot);
        needs.push_back({span.slot, uint32_t(span.ids.size())});
        longest = std::max(longest, uint32_t(span.ids.size()));
        total += uint32_t(span.ids.size());
    }
    cache_->reserve(needs);
    for (uint32_t at = 0; at < longest; at += options_.batch_size) {
        const uint64_t pass = ++passes_;
        if (options_.before_pass) options_.before_pass(pass);
        if (options_.delay.count() > 0) std::this_thread::sleep_for(options_.delay);
        for (size_t i = 0; i < spans.size(); i++) {
            const uint32_t length = uint32_t(spans[i].ids.size());
            if (at >= length) continue;
            const uint32_t count = std::min(options_.batch_size, length - at);
            run_pass(spans[i], i, at, count, each);
            done += count;
        }
        if (progress && !progress(done, total)) return false;
    }
    return true;
}

} // namespace tq::test
