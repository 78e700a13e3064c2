class Temper < Formula
  desc "$description"
  homepage "$source"
  version "$version"
  license "MIT"

$platforms
  def install
    bin.install Dir["temper-*"].first => "temper"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/temper --version")
  end
end
