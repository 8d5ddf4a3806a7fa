// Part of GpuStage: its recordings. A pass is recorded once for each shape, and then run for every block and token of that shape:
// recording the 400 dispatches of a dense model takes longer than a token. What differs between two runs (ids, positions, slots,
// page tables) is data in the context buffer, which write() fills before each run. A recording has workgroups for all rows of its
// shape; workgroups of absent rows end at once. So few shapes suffice: blocks in steps of a sixteenth of the batch, separate rows
// in powers of two, each with the head or without (Shape). The kernels of shapes that are certain to come are built before the
// first token (first_shapes()), because drivers take up to a second for one; other shapes are recorded when they first occur. A
// recording for a part of a block has the kernels of the whole (Shape::block), so that a token's bits do not depend on where a
// block is divided.
#include "base/ensure.h"
#include "model/gpu/gpu_stage.h"
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <numeric>

namespace tq::gpu {

PassLimits GpuStage::limits() const {
    const ForwardOptions& o = options_;
    // The kernels of a block give a token the same bits wherever the block begins and ends, those of a short block do not: its
    // attention is split.
    BlockKernels kernels{.block = o.batch_size};
    if (tuning_.short_block < o.batch_size) kernels.many = std::max(tuning_.short_block, max_separate_rows(o)) + 1;
    return {.kernels = o.deterministic ? BlockKernels{} : kernels,
            .deterministic = o.deterministic,
            .batch_size = o.batch_size,
            .short_block = tuning_.short_block,
            .max_separate_rows = max_separate_rows(o),
            .min_separate_rows = max_separate_rows(o), // reading weights takes the time
            .separate_room = max_separate_rows(o),
            .separate_slice = max_separate_rows(o),
            .max_block_spans = max_block_spans(o),
            .max_head_rows = max_head_rows,
            .max_hidden_rows = max_hidden_rows()};
}

// Returns the passes that are recorded at the beginning: of a token and of a block (or of their parts that are here), and of
// drafts' verification: compiling it in the middle of a text would cost more than drafts gain.
std::vector<GpuStage::Shape> GpuStage::first_shapes() const {
    std::vector<Shape> out;
    if (!hidden_crossing_) {
        const uint32_t batch = options_.batch_size;
        out = {{1, true, all_halves(), Head::logits}, shape_of_block(all_halves(), batch, batch)};
        if (drafts())
            for (const Head head : {Head::draft, Head::draft_likely}) out.push_back({1, true, {}, head});
        for (uint32_t rows = 2; options_.speculative && rows <= max_separate_rows(options_); rows *= 2)
            out.push_back({rows, true, all_halves(), Head::logits});
        return out;
    }
    for (const HalfRange halves : options_.held.ranges(config_.num_hidden_layers)) {
        out.push_back({1, true, halves, Head::none});
        out.push_back(shape_of_block(halves, options_.batch_size, options_.batch_size));
    }
    if (options_.held.head()) out.push_back({1, true, {}, Head::logits});
    return out;
}

// Returns blocks of the networks whose weights are not here yet: what is recorded depends on them, the kernels do not.
std::vector<GpuStage::Shape> GpuStage::streamed_shapes() const {
    std::vector<Shape> out;
    for (const uint32_t layer : options_.streamed) {
        const uint32_t half = feed_forward_of(layer);
        out.push_back(shape_of_block({half, half + 1}, options_.batch_size, options_.batch_size));
    }
    return out;
}

void GpuStage::record_again() {
    recordings_.clear();
    ahead_.reset();
}

ForwardPass GpuStage::new_pass(Recorder& recorder, Taps& taps, const Shape& shape) const {
    const uint32_t spans = shape.separate ? 1 : max_block_spans(options_);
    return {{.recorder = recorder,
             .tuning = tuning_,
             .context = context_,
             .tokens = shape.rows,
             .head_dim = config_.head_dim,
             .step = step_,
             .spans = spans,
             .separate = shape.separate,
             .block = shape.block,
             .rotary_dim = config_.rotary_dim},
            config_,
            scratch_,
            taps};
}

Activations GpuStage::activations(const Buffer& logits) const { return {config_, scratch_, ids_, logits}; }

void GpuStage::upload(Recorder& recorder, uint64_t begin, uint64_t end) const {
    recorder.copy(View(context_, begin, end - begin), View(step_upload_, begin, end - begin));
}

// Uploads the inputs of a run: header and rows, and the ids; h instead of ids if the device holds only some of the halves.
void GpuStage::begin_step(Pass& pass, HalfRange halves, Head head) const {
    upload(pass.recorder, 0, ContextLayout::rows_at() + pass.tokens * sizeof(Row));
    if (!halves.empty() && !pass.separate) upload(pass.recorder, layout_.spans_at(), layout_.tables_at());
    const uint64_t ids = 4ull * pass.tokens, hidden = ids * config_.hidden_size;
    if (is_whole(halves) || is_draft(head)) pass.recorder.copy(View(ids_, 0, ids), View(ids_upload_, 0, ids));
    if (hidden_crossing_) pass.recorder.copy(View(scratch_.h, 0, hidden), View(hidden_crossing_->upload, 0, hidden));
}

// Records halves, all of them from ids_ on.
void GpuStage::record_halves(ForwardPass& pass, HalfRange halves, const Activations& x) const {
    if (is_whole(halves)) {
        layers(pass, net_, x);
    } else {
        for (uint32_t half = halves.begin; half < halves.end; half++) {
            const Layer& l = net_.layers[half / 2];
            pass.begin(l);
            half == attention_of(l.number) ? first_half(pass, l, x) : feed_forward_half(pass, l, x);
        }
    }
    pass.end_layers();
}

// Records the computation of a shape; its logits are in logits_of(rows).
void GpuStage::record_steps(ForwardPass& pass, const Shape& shape) {
    const Logits* out = gives_logits(shape.head) ? &logits_of(shape.rows) : nullptr;
    const Activations x = activations(out != nullptr && out->values ? *out->values : scratch_.logits);
    if (is_draft(shape.head)) {
        if (shape.head == Head::draft_likely) pass.shortened = &net_.mtp->output.matrix;
        draft(pass, net_, x);
        return pass.end_layers();
    }
    record_halves(pass, shape.halves, x);
    pass.in_head = shape.halves.empty();
    if (shape.head == Head::logits) head(pass, net_, x);
    if (shape.head == Head::hidden) last_norm(pass, net_, x);
}

// Builds the kernels of all passes at once, before the first is recorded.
void GpuStage::prepare() {
    Recorder::prepare(device_, [&](Recorder& recorder) {
        Taps none;
        for (const auto& shapes : {first_shapes(), streamed_shapes()})
            for (const Shape& shape : shapes) {
                ForwardPass pass = new_pass(recorder, none, shape);
                record_steps(pass, shape);
            }
        ForwardPass token = new_pass(recorder, none, {1, true, all_halves(), Head::logits});
        for (const Ahead step : {Ahead::token_of_few, Ahead::token_of_many})
            if (samples()) sample_next(token, step);
    });
}

const GpuStage::Logits& GpuStage::logits_of(uint32_t rows) {
    const auto found = logits_.find(rows);
    if (found != logits_.end()) return found->second;
    const uint64_t bytes = 4ull * rows * config_.vocab_size;
    Logits made{{}, device_.allocate("logits read back", bytes, Memory::readback)};
    if (rows > 1) made.values = device_.allocate("logits of several rows", bytes);
    return logits_.emplace(rows, std::move(made)).first->second;
}

Buffer& GpuStage::hidden_readback() {
    const uint64_t bytes = 4ull * max_hidden_rows() * config_.hidden_size;
    if (!hidden_) hidden_ = device_.allocate("states read back", bytes, Memory::readback);
    return *hidden_;
}

GpuStage::Recording GpuStage::record(const Shape& shape) {
    Taps taps(device_, options_.tap);
    Recorder recorder(device_);
    step_ = {options_.context_size - std::min(shape.rows, options_.context_size), shape.rows};
    ForwardPass pass = new_pass(recorder, taps, shape);
    begin_step(pass, shape.halves, shape.head);
    record_steps(pass, shape);
    if (gives_logits(shape.head)) {
        const Logits& out = logits_of(shape.rows);
        recorder.copy(out.readback, out.values ? *out.values : scratch_.logits);
    } else if (shape.head == Head::hidden) {
        recorder.copy(hidden_readback(), View(scratch_.a, 0, hidden_readback().bytes()));
    } else if (hidden_crossing_) {
        const uint64_t bytes = 4ull * shape.rows * config_.hidden_size;
        recorder.copy(View(hidden_crossing_->readback, 0, bytes), View(scratch_.h, 0, bytes));
    }
    return {std::move(taps), recorder.finish()};
}

GpuStage::Recording& GpuStage::recorded(const Shape& shape) {
    const auto found = recordings_.find(shape);
    return found != recordings_.end() ? found->second : recordings_.emplace(shape, record(shape)).first->second;
}

// Returns the recording for rows of a block. Short blocks (a chat's next turn) have kernels of their own, whose attention is
// split. Workgroups without a row end at once on GPUs, but take as long as others on llvmpipe: so recordings have few of them.
GpuStage::Shape GpuStage::shape_of_block(HalfRange halves, uint32_t rows, uint32_t whole) const {
    const uint32_t block = whole > tuning_.short_block ? options_.batch_size : std::min(options_.batch_size, tuning_.short_block),
                   step = std::max(options_.batch_size / 16, 2u);
    return {std::min(uint32_t(round_up(rows, step)), block), false, halves, Head::none, block};
}

void GpuStage::upload_tables() {
    if (uploaded_tables_ == cache_.version()) return;
    for (uint32_t slot = 0; slot < options_.slots; slot++) layout_.write_table(step_upload_.host(), slot, cache_.table(slot));
    Recorder recorder(device_);
    upload(recorder, layout_.tables_at(), layout_.rope_at());
    recorder.finish().run();
    uploaded_tables_ = cache_.version();
}

static std::span<const float> floats_of(const Buffer& readback, uint64_t count) {
    return {reinterpret_cast<const float*>(readback.host().data()), size_t(count)};
}

void GpuStage::write(const PassRows& rows) {
    upload_tables();
    step_ = {rows.rows[0].position, rows.count()};
    layout_.write_rows(step_upload_.host(), rows.rows, rows.spans);
    std::memcpy(ids_upload_.host().data(), rows.ids.data(), rows.ids.size() * 4);
}

// Runs the recording of a shape on rows. Returns whether it ran to its end.
bool GpuStage::run(const Shape& shape, const PassRows& rows, const KeepGoing& keep_going) {
    Recording& pass = recorded(shape);
    write(rows);
    if (!pass.commands.run(keep_going)) return false;
    pass.taps.deliver(rows.count());
    return true;
}

void GpuStage::take_hidden(std::span<const float> h) {
    if (!h.empty()) std::ranges::copy(std::as_bytes(h), hidden_crossing_->upload.host().begin());
}

void GpuStage::give_hidden(std::span<float> h) const {
    if (!h.empty()) std::memcpy(h.data(), hidden_crossing_->readback.host().data(), h.size_bytes());
}

// Runs rows of a block in one pass.
bool GpuStage::run_rows(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h, const KeepGoing& keep_going) {
    const auto start = std::chrono::steady_clock::now();
    take_hidden(h);
    if (!run(shape_of_block(halves, rows.count(), whole), rows, keep_going)) return false;
    give_hidden(h);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const double of_all = double(head_half(config_.num_hidden_layers)) / (halves.end - halves.begin);
    if (rows.spans.size() == 1) pace_.ran(rows.rows[0].position, rows.count(), seconds.count() * of_all);
    return true;
}

bool GpuStage::run_separate(HalfRange halves, const PassRows& rows, std::span<float> h, std::span<const float>* logits,
                            const KeepGoing&) { // in one submission
    const Shape shape{std::bit_ceil(rows.count()), true, halves, logits != nullptr ? Head::logits : Head::none};
    take_hidden(h);
    run(shape, rows);
    give_hidden(h);
    if (logits != nullptr) *logits = floats_of(logits_of(shape.rows).readback, uint64_t(rows.count()) * config_.vocab_size);
    return true;
}

// Brings these rows of h to the device, one after the other. Returns their numbers there.
std::vector<uint32_t> GpuStage::take_rows(std::span<const uint32_t> rows, std::span<const float> h) {
    const size_t cols = config_.hidden_size;
    const std::span<std::byte> to = hidden_crossing_->upload.host();
    for (size_t i = 0; i < rows.size(); i++)
        std::ranges::copy(std::as_bytes(h.subspan(rows[i] * cols, cols)), to.begin() + ptrdiff_t(4 * i * cols));
    std::vector<uint32_t> there(rows.size());
    std::iota(there.begin(), there.end(), 0);
    return there;
}

std::span<const float> GpuStage::run_head(Head head, std::span<const uint32_t> rows, std::span<const float> h, bool separate) {
    const auto count = uint32_t(rows.size());
    const bool alone = separate || count == 1;
    const Shape shape = head == Head::hidden ? Shape{max_hidden_rows(), true, {}, head}
                                             : Shape{alone ? std::bit_ceil(count) : max_head_rows, alone, {}, head};
    Recording& pass = recorded(shape);
    step_ = {0, count};
    layout_.write_head(step_upload_.host(), h.empty() ? std::vector(rows.begin(), rows.end()) : take_rows(rows, h));
    pass.commands.run();
    pass.taps.deliver(count);
    if (head == Head::hidden) return floats_of(hidden_readback(), uint64_t(count) * config_.hidden_size);
    return floats_of(logits_of(shape.rows).readback, uint64_t(count) * config_.vocab_size);
}

std::span<const float> GpuStage::run_draft(const PassRows& rows, DraftIds ids) {
    const Shape shape{std::bit_ceil(rows.count()), true, {}, ids == DraftIds::likely ? Head::draft_likely : Head::draft};
    run(shape, rows);
    return floats_of(logits_of(shape.rows).readback, uint64_t(rows.count()) * config_.vocab_size);
}

void GpuStage::settle(uint32_t slot, uint32_t settled, uint32_t tokens) {
    const uint32_t none = 0;
    PassRows row;
    row.add(slot, tokens, {&none, 1}, 0, true, {settled, tokens});
    write(row);
    Taps taps;
    Recorder recorder(device_);
    ForwardPass pass = new_pass(recorder, taps, {1, true, {}, Head::none});
    const Activations x = activations(scratch_.logits);
    upload(recorder, 0, ContextLayout::rows_at() + sizeof(Row));
    for (const Layer& l : net_.layers)
        if (l.recurrence && l.recurrence->states) gpu::settle(pass, l, x);
    recorder.finish().run();
}

} // namespace tq::gpu
