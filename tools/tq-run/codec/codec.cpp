// tq-run codec: the cache's codec on files of vectors, what its types are made of, and how fast it is.
#include "tools/tq-run/codec/codec.h"
#include "base/printable.h"
#include "model/kv/layouts.h"
#include "tools/tq-run/commands.h"

namespace tq {
namespace {

Option add_text(ArgumentParser& command, const char* flag, std::string& value, const char* help, const char* what) {
    return command.add_option(flag, value, help).option_text(what);
}

void add_codec_flags(ArgumentParser& command, CodecArguments& a, const char* type_help, const char* device_help) {
    add_text(command, "-t,--type", a.type, type_help, "TYPE").check(parsed_by(parse_kv_type));
    command.add_option("--head-dim", a.head_dim, "length of a vector: 64, 128 (default) or 256")
        .check(parsed_by([](const std::string& text) {
            if (text != "64" && text != "128" && text != "256") fail("it must be 64, 128 or 256, not {}", printable(text));
        }))
        .option_text("N");
    add_text(command, "--scale-rule", a.scale_rule, "scale of tq types: unbiased (default), least-squares, norm", "RULE")
        .check(parsed_by(parse_scale_rule));
    add_text(command, "--rotation", a.rotation, "of rotated types: wht (default) or haar", "NAME")
        .check(parsed_by(parse_rotation));
    command.add_option("--layer", a.layer, "the layer whose rotation it is; default 0").check(number(0, 9999)).option_text("N");
    add_text(command, "--side", a.side, "the rotation of that layer's keys (k, default) or values (v)", "k|v")
        .check(parsed_by([](const std::string& text) {
            if (text != "k" && text != "v") fail("it must be k or v, not {}", printable(text));
        }));
    if (device_help != nullptr) add_text(command, "--device", a.device, device_help, "NAME");
    add_flags(command, a.console);
}

void add_convert_flags(ArgumentParser& command, ConvertArguments& a, const char* in, const char* out) {
    add_codec_flags(command, a, "cache type: tq4, q8_0, ... (tq-run codec info lists them)",
                    "index or part of the name of a Vulkan device; default: cpu. The bytes are the same");
    command.get_option("--type").required();
    add_text(command, "-i,--in", a.in, in, "FILE").required();
    add_text(command, "-o,--out", a.out, out, "FILE").required();
    add_text(command, "--layout", a.layout, "of the stored vectors: planes (default), block68, bytes132, ggml", "NAME")
        .check(parsed_by(parse_kv_layout));
    command.add_flag("--allow-nonfinite", a.allow_nonfinite, "keep vectors with a NaN or an infinity, marked as such");
    a.device = "cpu";
}

} // namespace

KvCodec CodecArguments::codec(KvType type) const {
    const RotationKind kind = is_rotated(type) ? parse_rotation(rotation) : RotationKind::wht;
    return {type, parse_scale_rule(scale_rule), make_rotation(kind, layer, side == "k" ? KvSide::key : KvSide::value, head_dim)};
}

void add_codec(ArgumentParser& app, Action& action) {
    ArgumentParser codec = app.add_command("codec", "The cache's codec on files: encode, decode, info, bench");
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
        add_codec_flags(command, a, "only this type, with all there is to say", nullptr);
        command.add_option("--vectors", a.vectors, "random unit vectors to measure errors on; default 1000")
            .check(number(1, 10'000'000))
            .option_text("N");
        command.add_option("-s,--seed", a.seed, "of their random numbers; default 1").option_text("N");
        command.add_flag("--json", a.json, "as a JSON list");
    };
    const auto bench_flags = [](ArgumentParser& command, CodecBenchArguments& a) {
        add_codec_flags(command, a, "only this type; default: those that differ in kind",
                        "index or part of the name of a Vulkan device, or cpu alone; default: the best one");
        command.add_option("--vectors", a.vectors, "vectors at a time; default 16384").check(number(1, 65535)).option_text("N");
        command.add_option("--rounds", a.rounds, "times of which the median counts; default 9")
            .check(number(1, 10000))
            .option_text("N");
    };
    add_command<ConvertArguments>(codec, action, "encode", "fp32 vectors to stored vectors", encode_flags, encode_file);
    add_command<ConvertArguments>(codec, action, "decode", "Stored vectors to fp32 vectors", decode_flags, decode_file);
    add_command<CodecInfoArguments>(codec, action, "info", "Types, their bytes, levels and errors", info_flags, codec_info);
    add_command<CodecBenchArguments>(codec, action, "bench", "Speed on the CPU and a device", bench_flags, codec_bench);
}

} // namespace tq
