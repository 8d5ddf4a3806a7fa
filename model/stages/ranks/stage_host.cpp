// The other side of RemoteStage: a loop that receives a request of rank 0, answers it, and waits for the next. Rank 0 keeps
// the books of the cache for all. A stage here has a Cache of its own, which is only a mirror: each request that uses
// sequences brings their pages, positions and windows (read_sequences), so two ranks cannot disagree about them, and nothing
// is stored here between requests but vectors.
// Pages, windows and states travel as the bytes that this rank's layers have in them (held_bytes), so a page costs the network
// once in all, however many ranks there are.
// A request that fails is an answer, too, with the reason; rank 0 decides what becomes of the job. After a failure, once no
// stage is left, the next one is made on a device that was opened again (renew). Numbers from another process are checked before
// they become indices: halves, slots, lengths.
#include "model/stages/ranks/stage_host.h"
#include "base/ensure.h"
#include "model/stages/ranks/stage_messages.h"
#include <algorithm>
#include <map>
#include <new>

namespace tq {
namespace {

struct Hosted {
    Hosted(const Cache::Shape& shape, const HeldHalves& held) : cache(shape), held(held) {}

    Cache cache; // of rank 0, whose tables come with requests
    HeldHalves held;
    std::unique_ptr<Stage> stage;
};

// Throw Error if a request names a slot or page that this cache does not have.
void require_slots(const Cache& cache, std::initializer_list<uint32_t> slots) {
    for (const uint32_t slot : slots)
        if (slot >= cache.shape().slots) fail("there is no slot {}", slot);
}

void require_page(const Cache& cache, uint32_t page, uint32_t tokens) {
    if (page >= cache.shape().pages || tokens > page_tokens) fail("there are no {} tokens in page {}", tokens, page);
}

void require_rows(const Cache& cache, const PassRows& rows) {
    for (const PassRow& row : rows.rows) {
        require_slots(cache, {row.slot});
        if (row.position / page_tokens >= cache.table(row.slot).size())
            fail("there is no page for position {} of slot {}", row.position, row.slot);
    }
    for (const RowSpan& span : rows.spans)
        if (span.first >= span.end || span.end > rows.count()) fail("rows {} to {} of {}", span.first, span.end, rows.count());
}

class Host {
  public:
    explicit Host(const RankModel& model) : model_(model), layers_(model.config.num_hidden_layers) {}

    void answer(RankRequest request, MessageReader& from, MessageWriter& to);
    void note_failure() { failed_ = true; }

  private:
    void make(uint32_t number, MessageReader& from, MessageWriter& to);
    void run(RankRequest request, Hosted& of, MessageReader& from, MessageWriter& to);
    void move_pages(RankRequest request, Hosted& of, MessageReader& from, MessageWriter& to);
    void move_window(RankRequest request, Hosted& of, MessageReader& from, MessageWriter& to);
    void move_states(RankRequest request, Hosted& of, MessageReader& from, MessageWriter& to);
    void use_sequences(RankRequest request, Hosted& of, MessageReader& from, MessageWriter& to);

    const RankModel& model_;
    const uint32_t layers_;
    std::map<uint32_t, std::unique_ptr<Hosted>> stages_;
    bool failed_ = false; // a request, since the device was opened
};

void Host::make(uint32_t number, MessageReader& from, MessageWriter& to) {
    const ForwardOptions options = read_options(from, model_.config);
    if (failed_ && stages_.empty()) {
        if (model_.renew) model_.renew();
        failed_ = false;
    }
    auto hosted = std::make_unique<Hosted>(cache_shape(options, model_.config), options.held);
    hosted->stage = model_.make(hosted->cache, options);
    to.add(hosted->stage->limits());
    to.add_text(hosted->stage->computation());
    stages_[number] = std::move(hosted);
}

void Host::run(RankRequest request, Hosted& of, MessageReader& from, MessageWriter& to) {
    read_sequences(from, of.cache);
    const auto halves = from.get<HalfRange>();
    const PassRows rows = read_rows(from);
    const auto whole = from.get<uint32_t>();
    require_rows(of.cache, rows);
    std::vector<float> h(size_t(rows.count()) * model_.config.hidden_size);
    from.get_list(std::span(h));
    for (uint32_t half = halves.begin; half < halves.end; half++)
        if (half >= head_half(layers_) || !of.held.holds(half)) fail("it does not have half {} of the layers", half);
    if (request == RankRequest::run_separate)
        of.stage->run_separate(halves, rows, h, nullptr, {});
    else
        of.stage->run_block(halves, rows, whole, h, [] { return true; });
    to.add_list(std::span<const float>(h));
}

void Host::move_pages(RankRequest request, Hosted& of, MessageReader& from, MessageWriter& to) {
    const auto [first, second, tokens] = from.get<std::array<uint32_t, 3>>();
    require_page(of.cache, first, tokens);
    if (request == RankRequest::copy_page) require_page(of.cache, second, tokens);
    if (request == RankRequest::copy_page) return of.stage->vectors().copy_page(first, second, tokens);
    const PageLayout layout = of.stage->vectors().page_layout();
    std::vector<std::byte> page(layout.bytes(tokens));
    if (request == RankRequest::read_page) {
        of.stage->vectors().read_page(first, tokens, page);
        to.add_list(std::span<const std::byte>(held_bytes(layout, of.held, page, tokens)));
    } else {
        put_held_bytes(layout, of.held, page, tokens, from.list<std::byte>());
        of.stage->vectors().write_page(first, tokens, page);
    }
}

void Host::move_window(RankRequest request, Hosted& of, MessageReader& from, MessageWriter& to) {
    const auto [slot, first, tokens] = from.get<std::array<uint32_t, 3>>();
    const PageLayout layout = window_layout(of.stage->vectors().page_layout());
    require_slots(of.cache, {slot});
    if (tokens > kept_window_tokens(of.cache.shape().window_tokens)) fail("slot {} has no window of {} tokens", slot, tokens);
    std::vector<std::byte> bytes(layout.bytes(tokens));
    if (request == RankRequest::read_window) {
        of.stage->vectors().read_window(slot, first, tokens, bytes);
        to.add_list(std::span<const std::byte>(held_bytes(layout, of.held, bytes, tokens)));
    } else {
        put_held_bytes(layout, of.held, bytes, tokens, from.list<std::byte>());
        of.stage->vectors().write_window(slot, first, tokens, bytes);
    }
}

void Host::move_states(RankRequest request, Hosted& of, MessageReader& from, MessageWriter& to) {
    const auto [slot, other, tokens] = from.get<std::array<uint32_t, 3>>();
    CacheVectors& vectors = of.stage->vectors();
    const bool settles = request == RankRequest::settle_state;
    require_slots(of.cache, {slot, settles ? slot : other});
    if (settles && (tokens < other || tokens - other > of.cache.shape().pending))
        fail("{} of {} tokens are settled", other, tokens);
    if (settles) return vectors.settle_state(slot, other, tokens);
    if (request == RankRequest::copy_state) return vectors.copy_state(slot, other);
    if (request == RankRequest::clear_state) return vectors.clear_state(slot);
    std::vector<std::byte> states(vectors.state_bytes());
    if (request == RankRequest::read_state) {
        vectors.read_state(slot, 0, states);
        to.add_list(std::span<const std::byte>(held_states(model_.config, of.held, states)));
    } else {
        put_held_states(model_.config, of.held, states, from.list<std::byte>());
        vectors.write_state(slot, 0, states);
    }
}

void Host::use_sequences(RankRequest request, Hosted& of, MessageReader& from, MessageWriter& to) {
    read_sequences(from, of.cache);
    const auto [slot, second, third] = from.get<std::array<uint32_t, 3>>();
    require_slots(of.cache, {slot, request == RankRequest::copy_window ? second : slot});
    if (request == RankRequest::repeat && (second == 0 || second % 2 != 0 || pages_of(third) > of.cache.table(slot).size()))
        fail("slot {} cannot repeat {} tokens up to {}", slot, second, third);
    if (request == RankRequest::stored &&
        (second >= layers_ || third > 1 || !of.held.attention(second) || model_.config.is_recurrent(second)))
        fail("there is no side {} of layer {} here", third, second);
    if (request == RankRequest::copy_window) {
        of.stage->vectors().copy_window(slot, second);
    } else if (request == RankRequest::repeat) {
        of.stage->vectors().repeat(slot, second, third);
    } else if (request == RankRequest::find_nonfinite) {
        to.add_text(of.stage->vectors().find_nonfinite(slot).value_or(""));
    } else {
        const StoredSide side = of.stage->vectors().stored(slot, second, KvSide(third));
        to.add(std::array{side.heads, side.tokens});
        to.add_list(std::span<const uint32_t>(side.codes));
        to.add_list(std::span<const uint16_t>(side.scales));
    }
}

void Host::answer(RankRequest request, MessageReader& from, MessageWriter& to) {
    if (request == RankRequest::plan) return to.add(model_.plan(read_options(from, model_.config)));
    const auto number = from.get<uint32_t>();
    if (request == RankRequest::make) return make(number, from, to);
    if (request == RankRequest::drop) return void(stages_.erase(number));
    const auto found = stages_.find(number);
    if (found == stages_.end()) fail("it has no stage {}", number);
    Hosted& of = *found->second;
    switch (request) {
    case RankRequest::run_block:
    case RankRequest::run_separate: return run(request, of, from, to);
    case RankRequest::read_page:
    case RankRequest::write_page:
    case RankRequest::copy_page: return move_pages(request, of, from, to);
    case RankRequest::read_window:
    case RankRequest::write_window: return move_window(request, of, from, to);
    case RankRequest::read_state:
    case RankRequest::write_state:
    case RankRequest::copy_state:
    case RankRequest::clear_state:
    case RankRequest::settle_state: return move_states(request, of, from, to);
    case RankRequest::copy_window:
    case RankRequest::repeat:
    case RankRequest::stored:
    case RankRequest::find_nonfinite: return use_sequences(request, of, from, to);
    case RankRequest::record_again: return of.stage->record_again();
    default: fail("there is no request {}", uint32_t(request));
    }
}

} // namespace

void host_stages(Transport& transport, const RankModel& model) {
    Host host(model);
    for (;;) {
        MessageReader from(transport.receive(0));
        const auto request = from.get<RankRequest>();
        if (request == RankRequest::end) return;
        MessageWriter reply, result;
        const auto failure = failure_of([&] { host.answer(request, from, result); });
        reply.add(failure ? RankReply::failed : RankReply::done);
        if (failure) {
            host.note_failure();
            reply.add_text(*failure);
        } else {
            reply.add_bytes(result.bytes());
        }
        transport.send(0, reply.bytes());
    }
}

} // namespace tq
