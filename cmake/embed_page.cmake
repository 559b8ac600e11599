# Writes a C++ file that holds the page: cmake -DOUTPUT=FILE -DFOLDER=DIR -DFILES=a.html,b.css -P embed_page.cmake
# Each file as it is and compressed; headers.txt as a table. The result depends on the contents alone.
string(REPLACE "," ";" files "${FILES}")
set(types html "text/html" css "text/css" js "text/javascript" mjs "text/javascript" svg "image/svg+xml")
set(arrays "")
set(rows "")
set(packed "${OUTPUT}.gz")

foreach(name IN LISTS files)
  string(REGEX REPLACE ".*\\." "" extension "${name}")
  list(FIND types "${extension}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "embed_page: ${name}: no content type is known for .${extension}")
  endif()
  math(EXPR at "${at} + 1")
  list(GET types ${at} type)
  set(path "/page/${name}")
  if(name STREQUAL "index.html")
    set(path "/")
  endif()

  file(READ "${FOLDER}/${name}" text)
  string(FIND "${text}" ")nibble_page\"" ends_early)
  if(NOT ends_early EQUAL -1)
    message(FATAL_ERROR "embed_page: ${name} contains the mark that ends its literal")
  endif()
  file(SHA256 "${FOLDER}/${name}" hash)
  string(SUBSTRING "${hash}" 0 16 hash)

  file(ARCHIVE_CREATE OUTPUT "${packed}" PATHS "${FOLDER}/${name}" FORMAT raw COMPRESSION GZip
       COMPRESSION_LEVEL 9)
  file(READ "${packed}" bytes HEX)
  file(REMOVE "${packed}")
  # Bytes 4 to 7 are the time of compression.
  string(SUBSTRING "${bytes}" 0 8 begin)
  string(SUBSTRING "${bytes}" 16 -1 end)
  set(bytes "${begin}00000000${end}")
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  string(LENGTH "${bytes}" length)
  math(EXPR length "${length} / 4")

  list(LENGTH rows index)
  string(APPEND arrays
    "constexpr std::string_view kText${index} = R\"nibble_page(${text})nibble_page\";\n"
    "constexpr std::string_view kGzip${index}{\"${bytes}\", ${length}};\n")
  list(APPEND rows
    "    {\"${path}\", \"${type}\\; charset=utf-8\", R\"(W/\"${hash}\")\", kText${index}, kGzip${index}},\n")
endforeach()

file(READ "${FOLDER}/headers.txt" lines)
string(REGEX REPLACE "([^:\n]+): ([^\n]+)\n" "    {\"\\1\", \"\\2\"},\n" headers "${lines}")

list(JOIN rows "" rows)
file(WRITE "${OUTPUT}"
"#include \"server/page_files.h\"

namespace nibble::server {
namespace {

${arrays}
constexpr PageFile kFiles[] = {
${rows}};

constexpr PageHeader kHeaders[] = {
${headers}};

}  // namespace

std::span<const PageFile> page_files() { return kFiles; }
std::span<const PageHeader> page_headers() { return kHeaders; }

}  // namespace nibble::server
")
