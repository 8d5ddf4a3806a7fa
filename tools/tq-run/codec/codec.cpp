// tq-run codec: the cache's codec on files of vectors, the structure of its types, and its speed.
// No model is needed: type, rotation, scale rule, head_dim, and the layer and side that choose the rotation say all about a
// codec. So the bytes of a cache can be compared with the bytes that other programs compute. encode and decode compute on the
// CPU unless --device names another: the bytes are the same.
#include "tools/tq-run/codec/codec.h"
#include "base/printable.h"
#include "model/kv/layouts.h"
#include "tools/tq-run/commands.h"

namespace tq {
namespace {

Option add_text(ArgumentParser& command, const char* flag, std::string& value, const char* help, const char* what) {
    return add_option(command, flag, value, what, help);
}

void add_codec_flags(ArgumentParser& command, CodecArguments& a, const char* type_help, const char* device_help) {
    add_text(command, "-t,--type", a.type, type_help, "TYPE").check(cache_types(parse_kv_type));
    add_option(command, "--head-dim", a.head_dim, "N", "channels of a vector: 64, 128 or 256; default: 128")
        .check(parsed_by([](const std::string& text) {
            if (text != "64" && text != "128" && text != "256") fail("it must be 64, 128 or 256, not {}", printable(text));
        }));
    add_text(command, "--scale-rule", a.scale_rule, "scale rule of tq types: unbiased, least-squares, norm; default: unbiased",
             "RULE")
        .check(parsed_by(parse_scale_rule));
    add_text(command, "--rotation", a.rotation,
             "rotation of rotated types: wht (Walsh-Hadamard) or haar (dense random); default: wht", "NAME")
        .check(parsed_by(parse_rotation));
    add_option(command, "--layer", a.layer, "N", "layer whose rotation is used; default: 0").check(number(0, 9999));
    add_text(command, "--side", a.side, "use the rotation of that layer's keys (k) or values (v); default: k", "k|v")
        .check(parsed_by([](const std::string& text) {
            if (text != "k" && text != "v") fail("it must be k or v, not {}", printable(text));
        }));
    if (device_help != nullptr) add_text(command, "--device", a.device, device_help, "NAME");
    add_flags(command, a.console);
}

void add_convert_flags(ArgumentParser& command, ConvertArguments& a, const char* in, const char* out) {
    add_codec_flags(command, a, "cache type, such as tq4 or q8_0 (tq-run codec info lists them)",
                    "Vulkan device by index or part of its name, or cpu: the bytes are the same; default: cpu");
    command.get_option("--type").required();
    add_text(command, "-i,--in", a.in, in, "FILE").required();
    add_text(command, "-o,--out", a.out, out, "FILE").required();
    add_text(command, "--layout", a.layout, "layout of the stored vectors: planes, block68, bytes132, ggml; default: planes",
             "NAME")
        .check(parsed_by(parse_kv_layout));
    add_flag(command, "--allow-nonfinite", a.allow_nonfinite, "keep vectors with a NaN or an infinity, marked as such");
    a.device = "cpu";
}

} // namespace

KvCodec CodecArguments::codec(KvType type) const {
    const KvSide of = side == "k" ? KvSide::key : KvSide::value;
    return {type, parse_scale_rule(scale_rule), make_rotation(parse_rotation(rotation), layer, of, head_dim, type)};
}

void add_codec(ArgumentParser& app, Action& action) {
    ArgumentParser codec = app.add_command("codec", "Apply the cache's codec to files: encode, decode, info, bench");
    codec.require_command();
    const auto encode_flags = [](ArgumentParser& command, ConvertArguments& a) {
        add_convert_flags(command, a, "vectors: raw fp32, little-endian; -: standard input",
                          "stored vectors; -: standard output");
    };
    const auto decode_flags = [](ArgumentParser& command, ConvertArguments& a) {
        add_convert_flags(command, a, "stored vectors; -: standard input",
                          "vectors: raw fp32, little-endian; -: standard output");
    };
    const auto info_flags = [](ArgumentParser& command, CodecInfoArguments& a) {
        add_codec_flags(command, a, "show only this type, in full detail", nullptr);
        add_option(command, "--vectors", a.vectors, "N", "number of random unit vectors to measure errors on; default: 1000")
            .check(number(1, 10'000'000));
        add_option(command, "-s,--seed", a.seed, "N", "seed of the random vectors; default: 1");
        add_flag(command, "--json", a.json, "print the types as JSON");
    };
    const auto bench_flags = [](ArgumentParser& command, CodecBenchArguments& a) {
        add_codec_flags(command, a, "time only this type; default: one of each kind",
                        "Vulkan device by index or part of its name, or cpu alone; default: the best device");
        add_option(command, "--vectors", a.vectors, "N", "number of vectors per run; default: 16384").check(number(1, 65535));
        add_option(command, "--rounds", a.rounds, "N", "number of runs, of which the median counts; default: 9")
            .check(number(1, 10000));
    };
    add_command<ConvertArguments>(codec, action, "encode", "Encode fp32 vectors", encode_flags, encode_file);
    add_command<ConvertArguments>(codec, action, "decode", "Decode stored vectors to fp32", decode_flags, decode_file);
    add_command<CodecInfoArguments>(codec, action, "info", "Show the types: bytes, levels, errors", info_flags, codec_info);
    add_command<CodecBenchArguments>(codec, action, "bench", "Time encoding and decoding on the CPU and a device", bench_flags,
                                     codec_bench);
}

} // namespace tq
