// A Stage on another machine: each call becomes a message to its rank (stage_host.cpp answers), with the rank's own layers alone
// in pages and states. Calls wait for the answer; a rank that fails answers with a reason, which is thrown here with the rank's
// name.
// Tables of pages change rarely and are long. They are sent only if the rank does not have this version of them (sent_version_).
// The version is forgotten while a message is under way: if that fails, nobody knows what arrived.
// Ranks load at the same time: a StageOrder posts the request, and start() takes the answer. An order that nobody starts takes
// its answer in the destructor, or the next reply would be mistaken for it.
#include "model/stages/ranks/remote_stage.h"
#include "base/ensure.h"
#include "model/prefix/owner.h"

namespace tq {
namespace {

MessageWriter request_of(RankRequest request, uint32_t stage) {
    MessageWriter out;
    out.add(request);
    out.add(stage);
    return out;
}

class RemoteStage final : public Stage, private CacheVectors {
  public:
    RemoteStage(RankLink& link, uint32_t number, const Config& config, const ForwardOptions& options, const Cache& cache,
                MessageReader& made)
        : link_(link), number_(number), config_(config), options_(options), cache_(cache), limits_(made.get<PassLimits>()),
          computation_(made.text()) {}
    ~RemoteStage() override {
        try {
            link_.ask(request_of(RankRequest::drop, number_));
        } catch (const Error&) { // the rank is gone, and the stage with it
        }
    }

    bool run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                   const KeepGoing& keep_going) override {
        if (keep_going && !keep_going()) return false;
        run(RankRequest::run_block, halves, rows, whole, h);
        return true;
    }
    bool run_separate(HalfRange halves, const PassRows& rows, std::span<float> h, std::span<const float>* logits,
                      const KeepGoing& keep_going) override {
        ENSURE(logits == nullptr, "{} rows: rank 0 has the head", rows.count());
        if (keep_going && !keep_going()) return false;
        run(RankRequest::run_separate, halves, rows, 0, h);
        return true;
    }
    std::span<const float> run_head(std::span<const uint32_t> rows, std::span<const float>, bool) override {
        ENSURE(false, "{} rows: rank 0 has the head", rows.size());
        return {};
    }
    std::span<const float> run_last_norm(std::span<const uint32_t> rows, std::span<const float> h) override {
        return run_head(rows, h, true);
    }
    PassLimits limits() const override { return limits_; }
    std::string computation() const override { return computation_; }
    void record_again() override { link_.ask(request_of(RankRequest::record_again, number_)); }
    CacheVectors& vectors() override { return *this; }

    PageLayout page_layout() const override { return tq::page_layout(config_, options_.kv); }
    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const override {
        MessageReader reply = link_.ask(numbers(RankRequest::read_page, page, 0, tokens));
        put_held_bytes(page_layout(), options_.held, bytes, tokens, reply.list<std::byte>());
    }
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) override {
        MessageWriter request = numbers(RankRequest::write_page, page, 0, tokens);
        request.add_list(std::span<const std::byte>(held_bytes(page_layout(), options_.held, bytes, tokens)));
        link_.ask(request);
    }
    void read_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<std::byte> bytes) const override {
        MessageReader reply = link_.ask(numbers(RankRequest::read_window, slot, first, tokens));
        put_held_bytes(window_layout(page_layout()), options_.held, bytes, tokens, reply.list<std::byte>());
    }
    void write_window(uint32_t slot, uint32_t first, uint32_t tokens, std::span<const std::byte> bytes) override {
        MessageWriter request = numbers(RankRequest::write_window, slot, first, tokens);
        request.add_list(std::span<const std::byte>(held_bytes(window_layout(page_layout()), options_.held, bytes, tokens)));
        link_.ask(request);
    }
    StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) const override;
    void copy_page(uint32_t from, uint32_t to, uint32_t tokens) override {
        link_.ask(numbers(RankRequest::copy_page, from, to, tokens));
    }
    void copy_window(uint32_t from, uint32_t to) override { ask_of(RankRequest::copy_window, from, to, 0); }
    uint64_t state_bytes() const override { return config_.state_bytes(); }
    void read_state(uint32_t slot, uint32_t, std::span<std::byte> bytes) const override {
        MessageReader reply = link_.ask(numbers(RankRequest::read_state, slot, 0, 0));
        put_held_states(config_, options_.held, bytes, reply.list<std::byte>());
    }
    void write_state(uint32_t slot, uint32_t, std::span<const std::byte> bytes) override {
        MessageWriter request = numbers(RankRequest::write_state, slot, 0, 0);
        request.add_list(std::span<const std::byte>(held_states(config_, options_.held, bytes)));
        link_.ask(request);
    }
    void copy_state(uint32_t from, uint32_t to) override { link_.ask(numbers(RankRequest::copy_state, from, to, 0)); }
    void clear_state(uint32_t slot) override { link_.ask(numbers(RankRequest::clear_state, slot, 0, 0)); }
    void settle_state(uint32_t slot, uint32_t settled, uint32_t tokens) override {
        link_.ask(numbers(RankRequest::settle_state, slot, settled, tokens));
    }
    void repeat(uint32_t slot, uint32_t length, uint32_t to) override { ask_of(RankRequest::repeat, slot, length, to); }
    std::optional<std::string> find_nonfinite(uint32_t slot) const override {
        const std::string where = ask_of(RankRequest::find_nonfinite, slot, 0, 0).text();
        return where.empty() ? std::nullopt : std::optional(where);
    }

  private:
    MessageWriter numbers(RankRequest request, uint32_t first, uint32_t second, uint32_t third) const {
        MessageWriter out = request_of(request, number_);
        out.add(std::array{first, second, third});
        return out;
    }
    // Begins a request, with the tables of the slots if the rank does not have them.
    MessageWriter with_sequences(RankRequest request) const {
        MessageWriter out = request_of(request, number_);
        write_sequences(out, cache_, sent_version_ != cache_.version());
        return out;
    }
    // If the reply fails, the tables may or may not have arrived. So they count as not sent until a reply says otherwise, and are
    // sent again.
    MessageReader ask_with_sequences(const MessageWriter& request) const {
        sent_version_ = UINT64_MAX; // until it is known to have arrived
        MessageReader reply = link_.ask(request);
        sent_version_ = cache_.version();
        return reply;
    }
    MessageReader ask_of(RankRequest request, uint32_t first, uint32_t second, uint32_t third) const {
        MessageWriter out = with_sequences(request);
        out.add(std::array{first, second, third});
        return ask_with_sequences(out);
    }
    void run(RankRequest request, HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h);

    RankLink& link_;
    const uint32_t number_;
    const Config& config_;
    const ForwardOptions options_;
    const Cache& cache_;
    const PassLimits limits_;
    const std::string computation_;
    mutable uint64_t sent_version_ = UINT64_MAX;
};

void RemoteStage::run(RankRequest request, HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h) {
    MessageWriter out = with_sequences(request);
    out.add(halves);
    write_rows(out, rows);
    out.add(whole);
    out.add_list(std::span<const float>(h));
    ask_with_sequences(out).get_list(h);
}

StoredSide RemoteStage::stored(uint32_t slot, uint32_t layer, KvSide side) const {
    MessageReader reply = ask_of(RankRequest::stored, slot, layer, uint32_t(side));
    const auto [heads, tokens] = reply.get<std::array<uint32_t, 2>>();
    if (heads != config_.num_key_value_heads || tokens != cache_.position(slot))
        fail("{} says that it has stored {} tokens of {} heads", link_.name(), tokens, heads);
    StoredSide out(options_.kv.codec(layer, config_.num_hidden_layers, side, config_.head_dim), heads, tokens);
    reply.get_list(std::span(out.codes));
    reply.get_list(std::span(out.scales));
    return out;
}

} // namespace

MessageReader RankLink::reply() {
    MessageReader reply(transport_.receive(rank_));
    if (reply.get<RankReply>() == RankReply::failed) throw Error(fmt::format("{}: {}", name_, reply.text()));
    return reply;
}

MessageReader RankLink::ask(const MessageWriter& request) {
    post(request);
    return reply();
}

void RankLink::end() noexcept {
    MessageWriter request;
    request.add(RankRequest::end);
    try {
        transport_.send(rank_, request.bytes());
    } catch (const Error&) { // it has ended before
    }
}

StageOrder::StageOrder(RankLink& link, const Config& config, const ForwardOptions& options)
    : link_(link), config_(config), options_(options), number_(link.next_stage()) {
    MessageWriter request = request_of(RankRequest::make, number_);
    write_options(request, options, config.num_hidden_layers);
    link_.post(request);
}

StageOrder::~StageOrder() {
    if (started_) return;
    try {
        link_.reply();
        link_.ask(request_of(RankRequest::drop, number_));
    } catch (const Error&) { // there is nothing to drop
    }
}

std::unique_ptr<Stage> StageOrder::start(const Cache& cache) {
    started_ = true; // what failed there is not there
    MessageReader made = link_.reply();
    return std::make_unique<RemoteStage>(link_, number_, config_, options_, cache, made);
}

} // namespace tq
