// tq-run codec encode and decode: a file of fp32 vectors to one of stored vectors and back, in batches, so that files of any
// length and pipes work. Both directions are a Conversion: bytes in, bytes out for each vector, and a function for a batch. fp32
// is little-endian in files whatever the machine.
// What cannot be stored is refused with the number of its vector: a NaN or infinity in the input, and a finite vector whose scale
// becomes infinite in fp16. --allow-nonfinite stores both, marked as the cache marks them. Output is written by ByteOutput, so an
// interrupted run leaves no file.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/terminal.h"
#include "model/kv/layouts.h"
#include "tools/tq-run/cli/byte_files.h"
#include "tools/tq-run/codec/codec.h"
#include "tools/tq-run/codec/vector_machine.h"
#include <bit>
#include <cmath>
#include <cstring>

namespace tq {
namespace {

constexpr uint32_t batch = 16384;
constexpr int interrupted_status = 130;

// A batch of vectors in all their forms.
struct Vectors {
    const KvCodec& codec;
    const KvLayout layout;
    const size_t head_dim, words, scales, stored_bytes;
    std::vector<float> x;
    std::vector<uint32_t> codes;
    std::vector<uint16_t> scale;
    std::vector<uint8_t> floats, stored; // x and the stored vectors as bytes

    Vectors(const KvCodec& codec, KvLayout layout, size_t count)
        : codec(codec), layout(layout), head_dim(codec.head_dim()), words(codec.words()), scales(codec.scales()),
          stored_bytes(layout_bytes(layout, codec.type, codec.head_dim())), x(count * head_dim), codes(count * words),
          scale(count * scales), floats(count * head_dim * 4), stored(count * stored_bytes) {}

    std::span<float> x_of(size_t n, size_t count = 1) { return std::span(x).subspan(n * head_dim, count * head_dim); }
    std::span<uint32_t> codes_of(size_t n, size_t count = 1) { return std::span(codes).subspan(n * words, count * words); }
    std::span<uint16_t> scales_of(size_t n, size_t count = 1) { return std::span(scale).subspan(n * scales, count * scales); }
    std::span<uint8_t> stored_of(size_t n) { return std::span(stored).subspan(n * stored_bytes, stored_bytes); }
};

void floats_from_bytes(std::span<float> x, std::span<const uint8_t> bytes) {
    for (size_t i = 0; i < x.size(); i++) {
        uint32_t word = 0;
        for (size_t b = 0; b < 4; b++) word |= uint32_t(bytes[4 * i + b]) << (8 * b);
        x[i] = std::bit_cast<float>(word);
    }
}

void bytes_from_floats(std::span<uint8_t> bytes, std::span<const float> x) {
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = uint8_t(std::bit_cast<uint32_t>(x[i / 4]) >> (8 * (i % 4)));
}

// `first`: the number of the batch's first vector. Throws Error at a vector that cannot be stored with finite values.
void require_finite_input(Vectors& v, size_t count, uint64_t first, const std::string& from) {
    for (size_t i = 0; i < count * v.head_dim; i++)
        if (!std::isfinite(v.x[i]))
            fail("channel {} of vector {} in {} is {}: only finite numbers can be stored (--allow-nonfinite keeps such vectors, "
                 "marked)",
                 i % v.head_dim, first + i / v.head_dim, from, v.x[i]);
}

void require_finite_stored(Vectors& v, size_t count, uint64_t first, const std::string& from) {
    for (size_t n = 0; n < count; n++)
        if (!is_finite(v.codec, v.codes_of(n), v.scales_of(n)))
            fail("vector {} in {} is too large for {}: it would become infinite (--allow-nonfinite stores it as that)", first + n,
                 from, name(v.codec.type));
}

// The conversion of one batch: `in` bytes of count vectors to `out` bytes.
struct Conversion {
    size_t bytes_in, bytes_out; // of a vector
    std::function<std::span<uint8_t>(size_t count, uint64_t first, const std::string& from)> run;
    std::span<uint8_t> input;
};

// Input is checked before it is encoded and what was stored afterwards: a finite vector can still exceed the fp16 scale of its
// type.
Conversion encoding(Vectors& v, VectorMachine& machine, bool allow_nonfinite) {
    const auto run = [&v, &machine, allow_nonfinite](size_t count, uint64_t first, const std::string& from) {
        floats_from_bytes(v.x_of(0, count), v.floats);
        if (!allow_nonfinite) require_finite_input(v, count, first, from);
        machine.encode(v.codes_of(0, count), v.scales_of(0, count), v.x_of(0, count));
        if (!allow_nonfinite) require_finite_stored(v, count, first, from);
        for (size_t n = 0; n < count; n++) export_vector(v.codec, v.layout, v.stored_of(n), v.codes_of(n), v.scales_of(n));
        return std::span(v.stored).first(count * v.stored_bytes);
    };
    return {v.head_dim * 4, v.stored_bytes, run, v.floats};
}

Conversion decoding(Vectors& v, VectorMachine& machine, bool allow_nonfinite) {
    const auto run = [&v, &machine, allow_nonfinite](size_t count, uint64_t first, const std::string& from) {
        for (size_t n = 0; n < count; n++) try {
                import_vector(v.codec, v.layout, v.codes_of(n), v.scales_of(n), v.stored_of(n), allow_nonfinite);
            } catch (const Error& error) {
                fail("vector {} in {} is not a valid {} in layout {}: {}", first + n, from, name(v.codec.type), name(v.layout),
                     error.what());
            }
        machine.decode(v.x_of(0, count), v.codes_of(0, count), v.scales_of(0, count));
        const auto bytes = std::span(v.floats).first(count * v.head_dim * 4);
        bytes_from_floats(bytes, v.x_of(0, count));
        return bytes;
    };
    return {v.stored_bytes, v.head_dim * 4, run, v.stored};
}

void require_whole(uint64_t bytes, const ByteInput& in, const Vectors& v, size_t unit) {
    if (bytes % unit == 0 && bytes > 0) return;
    fail("{} has {} bytes, which is not a whole number of vectors of {} channels in {} bytes each: check --type, --head-dim and "
         "--layout",
         in.name(), bytes, v.head_dim, unit);
}

// The length of a file is checked before the first batch. A pipe has none, so a last vector that is incomplete shows at its end;
// the output is a draft until then.
int convert(const ConvertArguments& arguments, bool encode) {
    if (arguments.out == "-" && is_terminal(Stream::output))
        throw UsageError("the output is binary, not for a terminal: name a file with --out, or pipe it on");
    Console console = arguments.console.console();
    const KvCodec codec = arguments.codec();
    const KvLayout layout = parse_kv_layout(arguments.layout);
    require_layout(codec.type, layout);
    ByteInput in(arguments.in);
    ByteOutput out(arguments.out, in);
    const auto machine = make_vector_machine(codec, arguments.device, batch);
    Vectors v(codec, layout, machine->batch());
    const Conversion conversion =
        encode ? encoding(v, *machine, arguments.allow_nonfinite) : decoding(v, *machine, arguments.allow_nonfinite);
    if (in.length()) require_whole(*in.length(), in, v, conversion.bytes_in);

    catch_interrupts();
    uint64_t done = 0;
    while (true) {
        const size_t bytes = in.read(conversion.input);
        if (interrupted()) {
            console.clear_status();
            return interrupted_status;
        }
        const size_t count = bytes / conversion.bytes_in;
        if (bytes % conversion.bytes_in != 0 || (done == 0 && bytes == 0))
            require_whole(done * conversion.bytes_in + bytes, in, v, conversion.bytes_in);
        if (count == 0) break;
        out.write(conversion.run(count, done, in.name()));
        done += count;
        console.status(
            fmt::format("{} vectors{}", done, in.length() ? fmt::format(" of {}", *in.length() / conversion.bytes_in) : ""));
    }
    console.clear_status();
    out.commit();
    write_error(fmt::format("{} vectors of {} channels: {} bytes of {} from {} ({})\n", done, v.head_dim,
                            done * conversion.bytes_out, encode ? name(codec.type) : "f32", done * conversion.bytes_in,
                            machine->name()));
    return 0;
}

} // namespace

int encode_file(const ConvertArguments& arguments) { return convert(arguments, true); }
int decode_file(const ConvertArguments& arguments) { return convert(arguments, false); }

} // namespace tq
