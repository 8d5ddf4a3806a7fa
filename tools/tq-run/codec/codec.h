// tq-run codec: the parts of the command.
#pragma once
#include "model/kv/codec.h"
#include "model/kv/options.h"
#include "tools/tq-run/cli/arguments.h"

namespace tq {

// The choice of a codec: the flags that all subcommands share.
struct CodecArguments {
    ConsoleArguments console;
    std::string type, rotation = "wht", scale_rule = name(KvOptions().scale_rule), side = "k", device;
    uint32_t layer = 0, head_dim = 128;

    KvCodec codec(KvType type) const;
    KvCodec codec() const { return codec(parse_kv_type(type)); }
};

struct ConvertArguments : CodecArguments {
    std::string in, out, layout = "planes";
    bool allow_nonfinite = false;
};

struct CodecInfoArguments : CodecArguments {
    uint32_t vectors = 1000;
    uint64_t seed = 1;
    bool json = false;
};

struct CodecBenchArguments : CodecArguments {
    uint32_t vectors = 16384, rounds = 9;
};

// Return the exit status, of encode and decode 130 after Ctrl-C, when no file is left. Throw Error for input that is no whole
// number of vectors or holds one that cannot be stored, and for a device whose bytes differ from the CPU's (codec_bench);
// UsageError if the bytes would go to a terminal.
int encode_file(const ConvertArguments& arguments);
int decode_file(const ConvertArguments& arguments);
int codec_info(const CodecInfoArguments& arguments);
int codec_bench(const CodecBenchArguments& arguments);

} // namespace tq
