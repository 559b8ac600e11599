# `cpack -G DEB` in the build folder: nibble_VERSION_ARCH.deb and libnibble-dev_VERSION_ARCH.deb. What the
# program's package depends on is found from its libraries by dpkg-shlibdeps.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME nibble)
set(CPACK_PACKAGE_VENDOR nibble)
set(CPACK_PACKAGE_CONTACT "The nibble authors <nibble@localhost>" CACHE STRING
    "Name and address of who makes the packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME nibble)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "Runs mixture-of-experts language models with 4-bit float experts
One program that runs models such as gpt-oss in MXFP4 from the published
checkpoint, on the processor or a GPU, without Python and without a network.
A small demo model is included.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libnibble-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# What nibbleConfig.cmake looks for.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libfmt-dev, nlohmann-json3-dev, libpcre2-dev, libhwy-dev, pkg-config")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "Headers and libraries of nibble
For programs that embed nibble's engine or its parts: find_package(nibble).")
include(CPack)
