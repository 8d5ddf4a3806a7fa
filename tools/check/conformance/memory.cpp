// Rows of the operations that kernels rely on: uploads, copies, bindings at an offset, large buffers, and barriers. The rows of
// barriers make each hazard alone: read after write, write after read, write after write, and overlapping parts of one buffer;
// the recorder must have placed exactly one barrier between two dispatches, and the result must be that of the order of
// recording.
#include "base/sizes.h"
#include "conformance_shaders.gen.h"
#include "runtime/uploader.h"
#include "tools/check/conformance/rig.h"
#include "tools/check/conformance/rows.h"
#include <cstring>

namespace tq::conformance {
namespace {

constexpr uint64_t large_bytes = 160 * mib; // more than the 128 MiB that every device can bind

std::vector<uint32_t> random_words(Random& random, size_t n) {
    std::vector<uint32_t> words(n);
    for (uint32_t& word : words) word = uint32_t(random.bits());
    return words;
}

uint32_t groups(uint32_t words) { return (words + 63) / 64; }

// Uploads `words` words, in pieces of at most `piece_words`.
Outcome upload(Rig& rig, Uploader::Path path, size_t words, size_t piece_words) {
    const std::vector<uint32_t> content = random_words(rig.random, words);
    const Buffer buffer = rig.device.allocate("conformance", words * 4);
    Uploader uploader(rig.device, path);
    for (size_t at = 0; at < words; at += piece_words) {
        const auto piece = std::as_bytes(std::span(content).subspan(at, std::min(piece_words, words - at)));
        std::memcpy(uploader.begin(View(buffer, at * 4, piece.size())).data(), piece.data(), piece.size());
        uploader.end();
    }
    uploader.finish();
    return compare_words(rig.read(buffer), content);
}

// Copies part of a buffer into the middle of another, at any multiple of 4 bytes.
Outcome copy(Rig& rig, size_t from, size_t to, size_t words) {
    const std::vector<uint32_t> source = random_words(rig.random, from + words + 7);
    std::vector<uint32_t> want(to + words + 9, poison);
    const Buffer src = rig.upload(std::as_bytes(std::span(source))), dst = rig.upload(std::as_bytes(std::span(want)));
    std::copy_n(source.begin() + std::ptrdiff_t(from), words, want.begin() + std::ptrdiff_t(to));
    Recorder recorder(rig.device);
    recorder.copy(View(dst, to * 4, words * 4), View(src, from * 4, words * 4));
    recorder.finish().run();
    return compare_words(rig.read(dst), want);
}

// Binds both buffers at `steps` times the device's alignment.
Outcome offset(Rig& rig, uint32_t steps, uint32_t words) {
    const uint64_t at = uint64_t(steps) * rig.device.capabilities().storage_alignment;
    const std::vector<uint32_t> source = random_words(rig.random, size_t(at / 4) + words);
    std::vector<uint32_t> want(source.size() + 64, poison);
    const Buffer src = rig.upload(std::as_bytes(std::span(source))), dst = rig.upload(std::as_bytes(std::span(want)));
    for (size_t i = at / 4; i < source.size(); i++) want[i] = source[i] + 5;
    Recorder recorder(rig.device);
    recorder.dispatch<probe::words>({groups(words)}, {}, {words, 0, 0, 5}, {}, View(dst, at, words * 4),
                                    View(src, at, words * 4));
    recorder.finish().run();
    return compare_words(rig.read(dst), want);
}

// Reads the last words of a buffer beyond 128 MiB: bound whole (an index beyond 128 MiB), or bound at an offset beyond it.
Outcome large(Rig& rig, bool whole) {
    const std::vector<uint32_t> content = random_words(rig.random, large_bytes / 4);
    const Buffer src = rig.upload(std::as_bytes(std::span(content))), dst = rig.output(1000);
    const uint32_t last = uint32_t(content.size() - 1000);
    const uint64_t at = whole ? 0 : (uint64_t(last) * 4 - 4096) / 4096 * 4096; // a multiple of every alignment
    Recorder recorder(rig.device);
    recorder.dispatch<probe::words>({groups(1000)}, {}, {1000, last - uint32_t(at / 4), 0, 0}, {}, dst,
                                    View(src, at, src.bytes() - at));
    recorder.finish().run();
    const std::vector<uint32_t> got = rig.read(dst);
    return compare_words(std::span(got).first(1000), std::span(content).subspan(last, 1000));
}

// Runs a hundred dispatches; each reads what the previous one wrote: only the recorder's barriers keep them in order.
Outcome chain(Rig& rig, uint32_t words) {
    const std::vector<uint32_t> content = random_words(rig.random, words);
    std::vector<uint32_t> want = content;
    for (uint32_t& word : want) word += 100 * 101 / 2;
    const Buffer x = rig.upload(std::as_bytes(std::span(content))), y = rig.output(words);
    Recorder recorder(rig.device);
    for (uint32_t i = 1; i <= 100; i++) {
        const bool odd = i % 2 == 1;
        recorder.dispatch<probe::words>({groups(words)}, {}, {words, 0, 0, i}, {}, odd ? y : x, odd ? x : y);
    }
    recorder.finish().run();
    return compare_words(rig.read(x), want);
}

// The hazard between two consecutive commands on the same words.
enum class Order { read_after_write, write_after_read, write_after_write, overlapping };

// Repeats y = x + i, then z[i] = y. With write_after_read something else is written to y right after; with write_after_write
// something else is written to y just before, and z only in the last round; with `overlapping` y is written through a binding
// that begins at an offset, and read through one that begins at its start. Every dispatch must wait for the previous one, and for
// that reason alone.
Outcome ordered(Rig& rig, Order order, uint32_t words) {
    constexpr uint32_t rounds = 20;
    const std::vector<uint32_t> content = random_words(rig.random, words);
    const uint32_t skipped = uint32_t(rig.device.capabilities().storage_alignment / 4);
    const Buffer x = rig.upload(std::as_bytes(std::span(content))), y = rig.output(skipped + words),
                 z = rig.output(rounds * words);
    const View part(y, skipped * 4, words * 4);
    Recorder recorder(rig.device);
    uint32_t dispatches = 0;
    const auto copy = [&](View to, uint32_t first, View from, uint32_t from_first, uint32_t add) {
        recorder.dispatch<probe::words>({groups(words)}, {}, {words, from_first, first, add}, {}, to, from);
        dispatches++;
    };
    for (uint32_t i = 0; i < rounds; i++) {
        if (order == Order::write_after_write) copy(y, 0, x, 0, ~i);
        copy(order == Order::overlapping ? part : View(y), 0, x, 0, i);
        if (order == Order::write_after_write && i + 1 < rounds) continue;
        copy(z, i * words, y, order == Order::overlapping ? skipped : 0, 0);
        if (order == Order::write_after_read) copy(y, 0, x, 0, ~i);
    }
    recorder.finish().run();
    if (recorder.barriers() != dispatches - 1)
        return {false, 1, 0, fmt::format("{} barriers between {} dispatches", recorder.barriers(), dispatches)};
    const std::vector<uint32_t> got = rig.read(z);
    std::vector<uint32_t> want = got;
    for (uint32_t i = order == Order::write_after_write ? rounds - 1 : 0; i < rounds; i++)
        for (uint32_t k = 0; k < words; k++) want[i * words + k] = content[k] + i;
    return compare_words(got, want);
}

} // namespace

void add_memory(Rows& rows, const Capabilities& device) {
    for (const auto& [name, path] :
         {std::pair("direct where possible", Uploader::Path::best), {"staged", Uploader::Path::staged}})
        for (const auto& [words, piece] : {std::pair<size_t, size_t>{1, 1}, {1031, 97}, {5 * mib + 3, 4 * mib}})
            rows.push_back(
                {"upload", name, fmt::format("{} words in pieces of {}", words, piece),
                 [=, path = path, words = words, piece = piece](Rig& rig) { return upload(rig, path, words, piece); }});
    for (const auto& [from, to, words] : {std::tuple<size_t, size_t, size_t>{0, 0, 1}, {3, 1, 61}, {1021, 4099, 70001}})
        rows.push_back({"copy", "words", fmt::format("{} from {} to {}", words, from, to),
                        [=, from = from, to = to, words = words](Rig& rig) { return copy(rig, from, to, words); }});
    for (const auto& [steps, words] : {std::pair{1u, 4u}, {3u, 1000u}, {257u, 131u}})
        rows.push_back({"binding", "at an offset", fmt::format("{} words at {} bytes", words, steps * device.storage_alignment),
                        [=, steps = steps, words = words](Rig& rig) { return offset(rig, steps, words); }});
    for (const bool whole : {false, true})
        if (device.allocation_bytes >= large_bytes && (!whole || device.storage_range_bytes >= large_bytes))
            rows.push_back({"binding", "beyond 128 MiB", whole ? "the whole buffer, its last words" : "the end of the buffer",
                            [=](Rig& rig) { return large(rig, whole); }, 2 * large_bytes});
    rows.push_back(
        {"barrier", "after each dispatch", "100 dispatches of 30011 words", [](Rig& rig) { return chain(rig, 30011); }});
    for (const auto& [name, order] : {std::pair("read after write", Order::read_after_write),
                                      {"write after read", Order::write_after_read},
                                      {"write after write", Order::write_after_write},
                                      {"overlapping parts", Order::overlapping}})
        rows.push_back(
            {"barrier", name, "20 rounds of 30011 words", [order = order](Rig& rig) { return ordered(rig, order, 30011); }});
}

} // namespace tq::conformance
