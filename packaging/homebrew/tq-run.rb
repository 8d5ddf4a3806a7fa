# Homebrew: a formula for a tap. packaging/release fills in what stands between @.
class TqRun < Formula
  desc "Qwen3 language models on any Vulkan GPU or the CPU, with a compressed KV cache"
  homepage "@HOMEPAGE@"
  url "@SOURCE_URL@"
  version "@VERSION@"
  sha256 "@SOURCE_SHA256@"
  license "Apache-2.0"

  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "glslang" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "vulkan-headers" => :build
  depends_on "vulkan-volk" => :build
  depends_on "curl"
  depends_on "fmt"
  depends_on "highway"
  depends_on "hiredis"
  depends_on "openssl@3"
  depends_on "utf8proc"
  depends_on "vulkan-loader"

  uses_from_macos "libedit"

  on_macos do
    depends_on "molten-vk"
  end

  def install
    system "cmake", "--preset", "release", "-DBUILD_TESTING=OFF", "-DTQ_WERROR=OFF",
                    "-DCMAKE_INSTALL_PREFIX=#{prefix}", "-DFETCHCONTENT_FULLY_DISCONNECTED=ON"
    system "cmake", "--build", "--preset", "release"
    system "cmake", "--install", "build/release"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/tq-run --version")
    assert_match(/\w/, shell_output("#{bin}/tq-run generate --device cpu -p 'Once upon a time' -n 8"))
  end
end
