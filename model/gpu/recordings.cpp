#include "model/gpu/recordings.h"
#include "base/ensure.h"
#include <algorithm>
#include <bit>
#include <cstring>

namespace tq::gpu {

Recordings::Recordings(Device& device, const Config& config, const DeviceWeights& weights, const ForwardOptions& options,
                       const Tuning& tuning, const KvCache& vectors, const Cache& cache)
    : device_(device), config_(config), options_(options), tuning_(tuning), cache_(cache),
      head_norms_(upload_head_norms(device, config, weights, options.kv)), net_(config, weights, head_norms_, vectors),
      layout_(context_layout(config, options)), context_(make_context(device, config, layout_)),
      scratch_(make_scratch(device, ScratchBytes(config, tuning, options))),
      ids_(device.allocate("ids", 4ull * options.batch_size)),
      step_upload_(device.allocate("step", layout_.rope_at(), Memory::upload)),
      ids_upload_(device.allocate("step ids", 4ull * options.batch_size, Memory::upload)),
      run_ahead_(device, scratch_, ids_, config.vocab_size) {
    prepare();
    recorded({1, true, true, Head::logits});
    recorded({options_.batch_size, false, true, Head::none});
    for (const Shape& shape : draft_shapes()) recorded(shape);
}

// Returns the passes that verify drafts. They are recorded at the beginning, for compiling kernels takes longer than drafts gain.
std::vector<Recordings::Shape> Recordings::draft_shapes() const {
    std::vector<Shape> out;
    for (uint32_t rows = 2; options_.speculative && rows <= max_separate_rows(options_); rows *= 2)
        out.push_back({rows, true, true, Head::logits});
    return out;
}

bool Recordings::samples() const { return tuning_.sampling && !options_.tap && config_.vocab_size <= max_sampling_logits; }

void Recordings::forget() {
    recordings_.clear();
    run_ahead_.forget();
}

ForwardPass Recordings::new_pass(Recorder& recorder, Taps& taps, const Shape& shape) const {
    const uint32_t spans = shape.separate ? 1 : max_block_spans(options_);
    return {{recorder, tuning_, context_, shape.rows, config_.head_dim, step_, spans, shape.separate}, config_, scratch_, taps};
}

Activations Recordings::activations(const Buffer& logits) const {
    const Scratch& s = scratch_;
    return {ids_, s.h, s.a, s.q, s.k, s.v, s.attn, s.ffn, logits, {s.routes, experts_of(config_)}};
}

void Recordings::upload(Recorder& recorder, uint64_t begin, uint64_t end) const {
    recorder.copy(View(context_, begin, end - begin), View(step_upload_, begin, end - begin));
}

// Uploads the inputs of a run: header and rows, and the ids where it has layers.
void Recordings::begin_step(Pass& pass, bool head) const {
    upload(pass.recorder, 0, ContextLayout::rows_at() + pass.tokens * sizeof(Row));
    if (head) return;
    if (!pass.separate) upload(pass.recorder, layout_.spans_at(), layout_.tables_at());
    pass.recorder.copy(View(ids_, 0, 4ull * pass.tokens), View(ids_upload_, 0, 4ull * pass.tokens));
}

// Records the pass of a token, from ids_ to its logits.
void Recordings::record_token(ForwardPass& pass) {
    const Activations x = activations(scratch_.logits);
    layers(pass, net_, x);
    pass.end_layers();
    head(pass, net_, x);
}

// Builds the kernels of all passes at once, before the first is recorded.
void Recordings::prepare() {
    Recorder::prepare(device_, [&](Recorder& recorder) {
        Taps none;
        ForwardPass token = new_pass(recorder, none, {1, true, true, Head::logits});
        record_token(token);
        for (const bool few : {true, false})
            if (samples()) run_ahead_.sample_next(token, few);
        ForwardPass block = new_pass(recorder, none, {options_.batch_size, false, true, Head::none});
        layers(block, net_, activations(scratch_.logits));
        block.end_layers();
        for (const Shape& shape : draft_shapes()) {
            ForwardPass rows = new_pass(recorder, none, shape);
            const Activations x = activations(*logits_of(shape.rows).values);
            layers(rows, net_, x);
            rows.end_layers();
            head(rows, net_, x);
        }
    });
}

const Recordings::Logits& Recordings::logits_of(uint32_t rows) {
    const auto found = logits_.find(rows);
    if (found != logits_.end()) return found->second;
    const uint64_t bytes = 4ull * rows * config_.vocab_size;
    Logits made{{}, device_.allocate("logits read back", bytes, Memory::readback)};
    if (rows > 1) made.values = device_.allocate("logits of several rows", bytes);
    return logits_.emplace(rows, std::move(made)).first->second;
}

Buffer& Recordings::hidden_readback() {
    const uint64_t bytes = 4ull * max_hidden_rows() * config_.hidden_size;
    if (!hidden_) hidden_ = device_.allocate("states read back", bytes, Memory::readback);
    return *hidden_;
}

Recordings::Recording Recordings::record(const Shape& shape) {
    Taps taps(device_, options_.tap);
    Recorder recorder(device_);
    step_ = {options_.context_size - std::min(shape.rows, options_.context_size), shape.rows};
    ForwardPass pass = new_pass(recorder, taps, shape);
    begin_step(pass, !shape.layers);
    const Logits* out = shape.head == Head::logits ? &logits_of(shape.rows) : nullptr;
    const Buffer& logits = out != nullptr && out->values ? *out->values : scratch_.logits;
    const Activations x = activations(logits);
    if (shape.layers) {
        layers(pass, net_, x);
        pass.end_layers();
    }
    pass.in_head = !shape.layers;
    if (shape.head == Head::logits) {
        head(pass, net_, x);
        recorder.copy(out->readback, logits);
    } else if (shape.head == Head::hidden) {
        last_norm(pass, net_, x);
        recorder.copy(hidden_readback(), View(x.a, 0, hidden_readback().bytes()));
    }
    return {std::move(taps), recorder.finish()};
}

Recordings::Recording& Recordings::recorded(const Shape& shape) {
    const auto found = recordings_.find(shape);
    return found != recordings_.end() ? found->second : recordings_.emplace(shape, record(shape)).first->second;
}

// Returns the rows of the recording for a block. Short ones (a chat's next turn) have their own, whose attention is split.
uint32_t Recordings::block_rows(uint32_t rows) const {
    return rows > tuning_.short_block ? options_.batch_size : std::min(options_.batch_size, tuning_.short_block);
}

void Recordings::upload_tables() {
    if (uploaded_tables_ == cache_.version()) return;
    for (uint32_t slot = 0; slot < options_.slots; slot++) layout_.write_table(step_upload_.host(), slot, cache_.table(slot));
    Recorder recorder(device_);
    upload(recorder, layout_.tables_at(), layout_.rope_at());
    recorder.finish().run();
    uploaded_tables_ = cache_.version();
}

void Recordings::set_computed(const Buffer& readback, uint32_t cols) {
    const std::span host = readback.host();
    computed_ = {reinterpret_cast<const float*>(host.data()), host.size() / 4};
    computed_cols_ = cols;
}

void Recordings::write(const PassRows& rows) {
    upload_tables();
    step_ = {rows.rows[0].position, rows.count()};
    layout_.write_rows(step_upload_.host(), rows.rows, rows.spans);
    std::memcpy(ids_upload_.host().data(), rows.ids.data(), rows.ids.size() * 4);
}

bool Recordings::run_block(const PassRows& rows, uint32_t whole, const std::function<bool()>& keep_going) {
    Recording& pass = recorded({block_rows(whole), false, true, Head::none});
    write(rows);
    if (!pass.commands.run(keep_going)) return false;
    pass.taps.deliver(rows.count());
    return true;
}

void Recordings::run_separate(const PassRows& rows, bool with_head) {
    const Shape shape{std::bit_ceil(rows.count()), true, true, with_head ? Head::logits : Head::none};
    Recording& pass = recorded(shape);
    write(rows);
    pass.commands.run();
    pass.taps.deliver(rows.count());
    if (with_head) set_computed(logits_of(shape.rows).readback, config_.vocab_size);
}

void Recordings::run_head(std::span<const uint32_t> rows, bool separate) {
    const auto count = uint32_t(rows.size());
    const Shape shape{separate || count == 1 ? std::bit_ceil(count) : max_head_rows, separate || count == 1, false, Head::logits};
    run_rows(shape, rows);
    set_computed(logits_of(shape.rows).readback, config_.vocab_size);
}

void Recordings::run_last_norm(std::span<const uint32_t> rows) {
    run_rows({max_hidden_rows(), true, false, Head::hidden}, rows);
    set_computed(hidden_readback(), config_.hidden_size);
}

// Runs the head on rows of h.
void Recordings::run_rows(const Shape& shape, std::span<const uint32_t> rows) {
    Recording& pass = recorded(shape);
    step_ = {0, uint32_t(rows.size())};
    layout_.write_head(step_upload_.host(), rows);
    pass.commands.run();
    pass.taps.deliver(uint32_t(rows.size()));
}

std::span<const float> Recordings::computed(uint32_t i) const {
    return computed_.subspan(size_t(i) * computed_cols_, computed_cols_);
}

std::vector<uint32_t> Recordings::run_ahead(const PassRows& row, uint32_t n, const DeviceSampling& sampling) {
    Taps none;
    step_ = {options_.context_size - 1, 1};
    run_ahead_.record(
        [&](Recorder& recorder) {
            return new_pass(recorder, none, {1, true, true, Head::logits});
        },
        [&](ForwardPass& pass) { begin_step(pass, false); }, [&](ForwardPass& pass) { record_token(pass); },
        has_few_candidates(sampling.settings));
    write(row);
    return run_ahead_.run(n, sampling, step_);
}

} // namespace tq::gpu
